"""Findings as JUnit's XML, a suite per file; a clean file is a case that passed."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from rich.text import Text

from hfspeed.lint.finding import Finding
from hfspeed.lint.report.fingerprint import relative


def junit(findings: Sequence[Finding], files: Sequence[str]) -> Text:
    """One ``testsuite`` per file with findings or without."""
    by_file: dict[str, list[Finding]] = {relative(file): [] for file in files}
    for finding in findings:
        by_file.setdefault(relative(finding.place.file), []).append(finding)
    cases = sum(max(len(found), 1) for found in by_file.values())
    root = ET.Element("testsuites", name="hfspeed", tests=str(cases), failures=str(len(findings)), errors="0")
    for file in sorted(by_file):
        _suite(root, file, by_file[file])
    ET.indent(root)
    return Text('<?xml version="1.0" encoding="utf-8"?>\n' + _legal(ET.tostring(root, encoding="unicode")))


def _suite(root: ET.Element, file: str, found: Sequence[Finding]) -> None:
    counts = {"tests": str(max(len(found), 1)), "failures": str(len(found)), "errors": "0"}
    suite = ET.SubElement(root, "testsuite", {"name": file, **counts})
    if not found:
        ET.SubElement(suite, "testcase", name="hfspeed", classname=file)
    for finding in found:
        place = finding.place
        at = {"file": file, "line": str(place.line), "column": str(place.column)}
        named = {"name": f"{finding.code} {place.line}:{place.column}", "classname": file}
        case = ET.SubElement(suite, "testcase", {**named, **at})
        failure = ET.SubElement(case, "failure", message=finding.message, type=str(finding.severity))
        end = f"-{place.end_line}:{place.end_column}" if place.end_line else ""
        said = [f"{file}:{place.line}:{place.column}{end}: {finding.code} {finding.message}"]
        said += [f"{word}: {text}" for word, text in (("cost", finding.cost), ("help", finding.help)) if text]
        failure.text = "\n".join([*said, finding.url])


def _legal(text: str) -> str:
    """Without the control characters that no XML may hold."""
    return "".join(one for one in text if one in "\t\n\r" or (one >= " " and one not in "\ufffe\uffff"))
