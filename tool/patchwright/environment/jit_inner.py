"""Runs in the environment's interpreter: lets flashinfer's own generators write build.ninja.

Reads JSON from standard input: ``jobs``, each [entry, module, function, arguments], and
``names`` of modules; no names: all. Writes for each job its entry and either ``refused``
(upstream's own words) or ``name``, ``folder``, ``ninja`` and ``sources``. Only
``flashinfer.jit`` and what the jobs name is imported: the package itself imports every
operator. flashinfer 0.6.3 keeps a build.ninja that is there; ``write_ninja`` renews it.
"""

import importlib
import importlib.machinery
import json
import sys
import time
import types


def _wait_less() -> None:
    """Let upstream not wait 5, 10 and 20 s between tries of a download, for each module.

    What it downloads is prebuilt; without a network it is refused in the end all the same.
    """
    wait = time.sleep

    def shorter(seconds: float) -> None:
        wait(min(seconds, 0.1))

    time.sleep = shorter  # type: ignore[assignment]


def main() -> None:
    asked = json.load(sys.stdin)
    _wait_less()
    importlib.import_module("tvm_ffi")  # before torch: its core probes for it
    torch = importlib.import_module("torch")
    spec = importlib.machinery.PathFinder.find_spec("flashinfer")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("flashinfer is not installed")
    package = types.ModuleType("flashinfer")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["flashinfer"] = package
    answers = []
    for entry, module, function, arguments in asked["jobs"]:
        try:
            given = {
                name: getattr(torch, value[6:])
                if isinstance(value, str) and value.startswith("torch.")
                else value
                for name, value in arguments.items()
            }
            made = getattr(importlib.import_module(module), function)(**given)
            if asked["names"] and made.name not in asked["names"]:
                continue
            made.write_ninja()
            answers.append({
                "entry": entry, "name": made.name, "folder": str(made.build_dir),
                "ninja": str(made.ninja_path), "sources": [str(s) for s in made.sources],
            })  # fmt: skip
        except Exception as error:
            answers.append({"entry": entry, "refused": f"{type(error).__name__}: {error}"})
    sys.stdout.flush()
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
