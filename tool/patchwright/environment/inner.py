"""Runs in the environment's own interpreter, as its programs would start: what it imports.

Reads JSON from standard input: ``names`` of packages and ``bytecode``, pairs of a source
and a compiled file. Writes for each name where the import system finds it and every copy
on the path, in order; and the compiled files that would be used and are not their source's.
Nothing is imported. Only the standard library is used, whatever shadows it.
"""

import sys


def main() -> None:
    # A json.py in the current folder, or on PYTHONPATH, is not ours to run.
    path, home = sys.path[:], str(sys.modules["os"].__file__).rpartition("/")[0]
    sys.path[:] = [home, home + "/lib-dynload"]
    import importlib.util
    import json
    from pathlib import Path

    sys.path[:] = path
    asked = json.load(sys.stdin)
    found = {}
    for name in asked["names"]:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            spec = None
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        origin = spec.origin if spec is not None else None
        copies = []
        for folder in path:
            at = Path(folder or ".").absolute() / name
            if at.is_dir() or at.with_suffix(".py").is_file():
                copies.append(str(at))
        found[name] = {"origin": origin or (places[0] if places else None), "copies": copies}
    stale = [compiled for source, compiled in asked["bytecode"] if _differs(source, compiled)]
    print(json.dumps({"imports": found, "stale": stale, "path": path}))


def _differs(source: str, compiled: str) -> bool:
    """Return whether an import would run ``compiled`` although ``source`` says other things."""
    import importlib.util
    import marshal
    from pathlib import Path

    try:
        data, text = Path(compiled).read_bytes(), Path(source).read_bytes()
        status = Path(source).stat()
    except OSError:
        return False
    if data[:4] != importlib.util.MAGIC_NUMBER or len(data) < 16:
        return False
    flags = int.from_bytes(data[4:8], "little")
    if flags & 3 == 3:
        return False  # checked by the source's hash at each import
    if not flags & 1:
        time, size = (int.from_bytes(data[at : at + 4], "little") for at in (8, 12))
        if time != int(status.st_mtime) & 0xFFFFFFFF or size != status.st_size & 0xFFFFFFFF:
            return False  # it would be compiled anew
    level = {"opt-1": 1, "opt-2": 2}.get(compiled.rsplit(".", 2)[-2], 0)
    try:
        made = compile(text, source, "exec", dont_inherit=True, optimize=level)
        return bool(marshal.loads(data[16:]) != made)  # noqa: S302 - what an import would run
    except (SyntaxError, ValueError, EOFError, TypeError):
        return True


if __name__ == "__main__":
    main()
