"""From what the user typed to the author's class and configuration, and to the module itself."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hfspeed.errors import SubjectError, UsageError
from hfspeed.planner.build import build, randomise
from hfspeed.planner.folder import config_json, no_file, path_of
from hfspeed.planner.import_file import AUTHOR_ERRORS, module_of, told

__all__ = ["Subject", "build", "load", "model_class_of", "randomise"]


@dataclass(frozen=True)
class Subject:
    """What is to be planned.

    Attributes:
        name: what the user typed.
        folder: where ``config.json`` (and perhaps weights) lie; ``None`` for a bare model type or file.
        config: the author's configuration, as its ``ForCausalLM`` takes it.
        model_class: the author's ``ForCausalLM``.
        file: the modeling file that defines it.
    """

    name: str
    folder: Path | None
    config: Any
    model_class: type[Any]
    file: Path


def load(name: str, *, trust_remote_code: bool = False) -> Subject:
    """Find the model that ``name`` means: a folder with config.json, a modeling ``.py`` file, or a model type.

    Nothing is downloaded. A repository name counts as the folder it has in the local Hub cache.

    Raises:
        UsageError: there is no such thing, or its own code may not be run without ``trust_remote_code``.
        SubjectError: it is there, but cannot be read, imported or configured.
    """
    path = path_of(name)
    if path.suffix == ".py":
        return _from_file(name, path)
    if path.is_dir():
        return _from_folder(name, path, trust_remote_code)
    no_file(name, path)
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if name in CONFIG_MAPPING_NAMES:
        return _from_type(name)
    cached = _cached(name)
    if cached is not None:
        return _from_folder(name, cached, trust_remote_code)
    raise UsageError(_not_found(name, list(CONFIG_MAPPING_NAMES)))


def model_class_of(config: Any, name: str = "") -> type[Any]:
    """The transformers ``ForCausalLM`` for ``config``: the one it names, else the one its class is mapped to."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    known = {entry for value in names.values() for entry in ([value] if isinstance(value, str) else value)}
    wanted = [entry for entry in getattr(config, "architectures", None) or () if entry in known]
    mapped = names.get(config.model_type)
    wanted += [mapped] if isinstance(mapped, str) else list(mapped or ())
    for entry in wanted:
        found = getattr(transformers, entry, None)
        if isinstance(found, type):
            return found
    told_as = getattr(config, "architectures", None) or [f"model_type {config.model_type!r}"]
    raise SubjectError(
        f"{name or config.model_type}: {', '.join(told_as)} is not a causal language model that transformers ships; "
        "name a ForCausalLM class in `architectures`, or plan its modeling file"
    )


def _from_type(name: str) -> Subject:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[name]
    config = _default(config_class, name)
    return _subject(name, None, config, model_class_of(config, name))


def _from_folder(name: str, folder: Path, trust: bool) -> Subject:
    values = config_json(folder)
    auto = values.get("auto_map") or {}
    if not isinstance(auto, dict):
        raise SubjectError(f"{folder / 'config.json'}: `auto_map` must be an object of class names, found {auto!r}")
    own = {key: str(value) for key, value in auto.items() if key in ("AutoConfig", "AutoModelForCausalLM")}
    if own and not trust:
        raise UsageError(
            f"{name} brings its own code ({', '.join(own.values())}), which runs on your machine; "
            "read it, then pass --trust-remote-code"
        )
    config = _read_config(folder, values, own.get("AutoConfig"))
    for part in (config, *(one for one in vars(config).values() if hasattr(one, "get_text_config"))):
        part._name_or_path = str(folder)  # where to look up the line of what a configuration says
    if "AutoModelForCausalLM" in own:
        return _subject(name, folder, config, _checked(own["AutoModelForCausalLM"], folder))
    return _subject(name, folder, config, model_class_of(config, name))


def _read_config(folder: Path, values: dict[str, Any], own: str | None) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    if own is not None:
        return _configured(_own_class(own, folder), folder)
    kind = values.get("model_type")
    if kind not in CONFIG_MAPPING_NAMES:
        near = difflib.get_close_matches(str(kind), list(CONFIG_MAPPING_NAMES), 3)
        hint = f"did you mean {' or '.join(near)}? Else " if near else ""
        raise SubjectError(
            f"{folder / 'config.json'}: model_type is {kind!r}, which the installed transformers does not know; {hint}"
            "name the repository's own classes in `auto_map` (AutoConfig, AutoModelForCausalLM)"
        )
    return _configured(CONFIG_MAPPING[kind], folder)


def _own_class(reference: str, folder: Path) -> Any:
    """What ``auto_map`` names: from the user's own file, so that refusals tell its lines, or another repository's."""
    if "--" in reference:
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        try:
            return get_class_from_dynamic_module(reference, str(folder), local_files_only=True)
        except AUTHOR_ERRORS as error:
            raise SubjectError(f"{folder / 'config.json'}: {reference} cannot be imported: {told(error)}") from error
    stem, _, name = reference.rpartition(".")
    file = folder / f"{stem}.py"
    if not file.is_file():
        raise SubjectError(f"{folder / 'config.json'}: `auto_map` names {reference}, but {file} does not exist")
    found = getattr(module_of(file), name, None)
    if found is None:
        raise SubjectError(f"{folder / 'config.json'}: `auto_map` names {reference}, but {file} has no {name}")
    return found


def _checked(reference: str, folder: Path) -> type[Any]:
    from transformers import PreTrainedModel

    found = _own_class(reference, folder)
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        raise SubjectError(
            f"{folder / 'config.json'}: {reference} is not a PreTrainedModel; name a ...ForCausalLM in `auto_map`"
        )
    return found


def _from_file(name: str, file: Path) -> Subject:
    module = module_of(file)
    folder = file.resolve().parent
    values = config_json(folder) if (folder / "config.json").is_file() else {}
    model_class = _causal_class(module, file, values)
    config_class = model_class.config_class
    if config_class is None:
        raise SubjectError(
            f"{file}: {model_class.__name__} has no config_class; set it, so that a configuration can be made"
        )
    if not values:
        return _subject(name, None, _default(config_class, f"{file}: {config_class.__name__}"), model_class)
    kind = values.get("model_type", config_class.model_type)
    if kind != config_class.model_type:
        raise SubjectError(
            f"{folder / 'config.json'}: model_type is {kind!r}, but {model_class.__name__} in {file.name} takes "
            f"{config_class.__name__} with model_type {config_class.model_type!r}; make them agree"
        )
    return _subject(name, folder, _configured(config_class, folder), model_class)


def _configured(config_class: type[Any], folder: Path) -> Any:
    try:
        return config_class.from_pretrained(folder, local_files_only=True)
    except AUTHOR_ERRORS as error:
        raise SubjectError(
            f"{folder / 'config.json'}: {config_class.__name__} does not take it: {told(error)}; mend config.json"
        ) from error


def _causal_class(module: ModuleType, file: Path, values: dict[str, Any]) -> type[Any]:
    """The one causal language model that ``module`` defines, or the one that config.json names."""
    from transformers import GenerationMixin, PreTrainedModel

    own: list[Any] = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, PreTrainedModel) and value.__module__ == module.__name__
    ]
    named = [str(entry) for entry in values.get("architectures") or ()]
    named.append(str((values.get("auto_map") or {}).get("AutoModelForCausalLM", "")).rsplit(".", 1)[-1])
    chosen = [value for value in own if value.__name__ in named]
    chosen = chosen or [value for value in own if value.__name__ in _mapped_names()]
    chosen = chosen or [value for value in own if value.__name__.endswith("ForCausalLM")]
    chosen = chosen or [value for value in own if issubclass(value, GenerationMixin) and value.config_class]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise SubjectError(
            f"{file}: several causal language models ({', '.join(value.__name__ for value in chosen)}); "
            "name one in `architectures` of a config.json beside the file"
        )
    seen = ", ".join(value.__name__ for value in own) or "none"
    raise SubjectError(
        f"{file}: no causal language model (PreTrainedModel classes here: {seen}); expected a ...ForCausalLM"
    )


def _mapped_names() -> set[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    values = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    return {entry for value in values for entry in ([value] if isinstance(value, str) else value)}


def _default(config_class: type[Any], name: str) -> Any:
    try:
        return config_class()
    except AUTHOR_ERRORS as error:
        raise SubjectError(
            f"{name} has no default configuration: {told(error)}; plan a folder with a config.json instead"
        ) from error


def _subject(name: str, folder: Path | None, config: Any, model_class: type[Any]) -> Subject:
    wanted = model_class.config_class
    if wanted is not None and not isinstance(config, wanted):
        text = config.get_text_config(decoder=True)
        if not isinstance(text, wanted) and type(text).__name__ != wanted.__name__:
            raise SubjectError(
                f"{name}: {model_class.__name__} takes {wanted.__name__}, but the configuration is a "
                f"{type(config).__name__}; make model_type and architectures agree"
            )
        config = text
    return Subject(name, folder, config, model_class, Path(inspect.getfile(model_class)))


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _not_found(name: str, types: list[str]) -> str:
    near = difflib.get_close_matches(name, types, 3)
    if near:
        return f"no folder and no model type is called {name!r}; did you mean {' or '.join(near)}?"
    fetch = f"; if it is a Hub repository, run `hf download {name}` first" if name.count("/") == 1 else ""
    return (
        f"{name!r} is no folder with config.json, no modeling .py file and no model type that transformers knows{fetch}"
    )
