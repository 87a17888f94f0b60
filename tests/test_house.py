"""The house rules of docs/architecture.md and CONTRIBUTING.md, as far as a machine can tell."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = sorted((ROOT / "hfspeed").rglob("*.py"))
EVERY = [*PACKAGE, *sorted(file for part in ("demo", "examples", "tests") for file in (ROOT / part).rglob("*.py"))]
TREES = {file: ast.parse(file.read_text("utf-8")) for file in EVERY}

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core", "tools", "stuff", "shared"}
SHORT_FILES = ("hfspeed/fusions/", "hfspeed/lint/rules/")
FROZEN = ("hfspeed/plan/", "hfspeed/hints/", "hfspeed/refusal.py")
INDEPENDENT = ("hfspeed/fusions", "hfspeed/axes", "hfspeed/lint/rules", "hfspeed/vllm/layers")
BROAD_EXCEPTS = {
    "hfspeed/vllm/__init__.py": "plugin registration",
    "hfspeed/lint/deep.py": "deep check of user code",
    "hfspeed/lint/child.py": "deep check of user code",
    "hfspeed/bench/arm.py": "bench arms",
}
# Ordinary English that some model type is also called by, or begins with.
ENGLISH = {
    *("align", "aria", "bit", "conditional", "ctrl", "decision", "depth", "diffusion", "embedding", "encoder", "fast"),
    *("flex", "git", "got", "grounding", "led", "openai", "perception", "prompt", "recurrent", "seed", "speech"),
    *("switch", "table", "time", "video", "vision", "visual"),
}
# What vLLM or a kernel library has called by a family, and what has to be called so.
FOREIGN = re.compile(
    r"\b(?:GemmaRMSNorm|Mamba(?:Base|Spec|AttentionBackendEnum)|layers\.mamba|mamba_(?:types?|utils|block_size)"
    r"|mamba_ssm(?:_cache_dtype)?|mamba_chunk_scan(?:_combined|_fwd_cpu)?"
    r"|supports_mamba_prefix_caching|get_mamba_(?:specs|state)_\w+)\b"
)
GENERATED_PAGES = re.compile(r"docs/rules(/HFS\d{3})?\.md")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home|tmp|opt|Users)/")


def name(file: Path) -> str:
    """A file as it is told, from the root."""
    return file.relative_to(ROOT).as_posix()


def files(*prefixes: str) -> list[Path]:
    return [file for file in EVERY if name(file).startswith(prefixes)]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def tracked() -> list[Path]:
    """Every text file of the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [ROOT / entry for entry in listed.split("\0") if entry]
    return [file for file in found if file.is_file() and file.suffix not in {".png", ".ico", ".svg"}]


def test_a_file_holds_one_idea() -> None:
    limit = {file: 200 if name(file).startswith(SHORT_FILES) else 300 for file in EVERY}
    lines = {file: len(file.read_text("utf-8").splitlines()) for file in EVERY}
    assert not {name(file): lines[file] for file in EVERY if lines[file] > limit[file]}


def test_a_function_fits_on_a_screen() -> None:
    """40 lines without docstring and a command's table of options; a test may be as long as what it expects."""
    long = {
        f"{name(file)}:{node.lineno} {node.name}": size
        for file in files("hfspeed/", "demo/", "examples/")
        for node in functions(TREES[file])
        if (size := (node.end_lineno or 0) - node.lineno + 1 - uncounted(node, name(file))) > 40
    }
    assert not long


def uncounted(node: ast.FunctionDef | ast.AsyncFunctionDef, file: str) -> int:
    """Lines of the docstring; in a command also those of the signature, which is the table of its options."""
    signature = node.body[0].lineno - node.lineno if file.startswith("hfspeed/cli/") else 0
    if ast.get_docstring(node) is None:
        return signature
    return signature + (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


def test_a_module_opens_with_one_sentence() -> None:
    wrong = []
    for file in EVERY:
        said = ast.get_docstring(TREES[file]) or ""
        first = " ".join(said.split("\n\n")[0].split())
        if not first or not first.endswith((".", "?", ":")):
            wrong.append(name(file))
    assert not wrong


def test_no_junk_drawers() -> None:
    assert not [name(file) for file in EVERY if FORBIDDEN_NAMES & set(file.relative_to(ROOT).with_suffix("").parts)]


def test_public_names_have_docstrings() -> None:
    missing = []
    for file in PACKAGE:
        for node in TREES[file].body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            overload = any(ast.unparse(entry).endswith("overload") for entry in node.decorator_list)
            if not overload and ast.get_docstring(node) is None:
                missing.append(f"{name(file)}:{node.lineno} {node.name}")
    assert not missing


def test_data_is_frozen() -> None:
    thawed = [
        f"{name(file)}:{node.lineno} {node.name}"
        for file in files(*FROZEN)
        for node in ast.walk(TREES[file])
        if isinstance(node, ast.ClassDef)
        for entry in node.decorator_list
        if "dataclass" in (told := ast.unparse(entry)) and "frozen=True" not in told
    ]
    assert not thawed


def test_broad_excepts_stand_in_three_places_at_most() -> None:
    broad = [
        (name(file), node.lineno)
        for file in PACKAGE
        for node in ast.walk(TREES[file])
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or re.search(r"\b(Base)?Exception\b", ast.unparse(node.type)))
        and not isinstance(node.body[-1], ast.Raise)  # one that cleans up and raises again hides nothing
    ]
    assert not [place for place in broad if place[0] not in BROAD_EXCEPTS]
    assert len(broad) <= 3


def test_siblings_are_strangers() -> None:
    """A fusion, an axis, a rule and a layer builder never import another of their kind."""
    imports = [
        f"{name(file)}:{node.lineno} {ast.unparse(node)}"
        for folder in INDEPENDENT
        for file in files(folder + "/")
        if file.name != "__init__.py"
        for node in ast.walk(TREES[file])
        if isinstance(node, ast.ImportFrom)
        and (node.level or f"{node.module}.".startswith(folder.replace("/", ".") + "."))
    ]
    assert not imports


def test_registries_are_not_import_side_effects() -> None:
    """No module of hfspeed calls a register() at its top level, and no decorator registers."""
    found = []
    for file in PACKAGE:
        for node in TREES[file].body:
            calls = [entry.value for entry in [node] if isinstance(entry, ast.Expr)]
            calls += getattr(node, "decorator_list", [])
            found += [f"{name(file)}:{call.lineno}" for call in calls if re.match(r"[\w.]*register", ast.unparse(call))]
    assert not found


def test_no_model_is_named() -> None:
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    families = {re.split(r"[_\-.]", entry)[0].rstrip("0123456789").lower() for entry in CONFIG_MAPPING_NAMES}
    families = {entry for entry in families if len(entry) > 2} - ENGLISH
    named = []
    for file in PACKAGE:
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            plain = FOREIGN.sub("", line)
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", plain)}
            named += [f"{name(file)}:{number} {word}" for word in words & families]
    assert not named


def test_no_path_of_somebodys_machine() -> None:
    found = [
        f"{name(file)}:{number} {line.strip()[:80]}"
        for file in tracked()
        if file != Path(__file__).resolve()
        for number, line in enumerate(file.read_text("utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert not found


def test_links_lead_somewhere() -> None:
    """Every relative link of every page resolves, and the part after # is a heading of that page."""
    broken = []
    for page in tracked():
        if page.suffix != ".md":
            continue
        prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            place, _, anchor = target.partition("#")
            other = (page.parent / place).resolve() if place else page
            if other.is_relative_to(ROOT) and GENERATED_PAGES.fullmatch(name(other)):
                continue
            if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
                broken.append(f"{name(page)}: {target}")
    assert not broken


def anchors(page: Path) -> set[str]:
    """The headings of a page as they are linked to."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def test_vendored_hints_are_current() -> None:
    from hfspeed.hints.vendor import NAME, vendored

    copies = list((ROOT / "examples").rglob(NAME))
    assert copies
    assert not [name(file) for file in copies if file.read_text("utf-8") != vendored()]


def test_modules_of_tests_have_names_of_their_own() -> None:
    """Tests import one another's modules by their bare names, so the first of two of one name would be both."""
    found = [file for file in (ROOT / "tests").rglob("*.py") if "hub" not in file.parts]
    names = [file.stem for file in found if not file.stem.startswith("__") and file.stem != "conftest"]
    helpers = [name for name in names if not name.startswith("test_")]
    assert len(helpers) == len(set(helpers)), sorted(name for name in set(helpers) if helpers.count(name) > 1)
