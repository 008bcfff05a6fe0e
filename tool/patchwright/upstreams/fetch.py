"""Finds and fetches distributions by name, version and hash, through uv.

uv brings the user's own index settings, credentials and cache. No address is kept:
what identifies a distribution is its file name and sha256.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from patchwright.config import UpstreamConfig
from patchwright.errors import PatchwrightError
from patchwright.lock import LockedUpstream
from patchwright.upstreams import Progress
from patchwright.upstreams.archive import sha256_of

# Settings that would change what is installed, or where. Index, cache, proxy and
# credential settings stay.
_DROPPED = frozenset({
    "UV_BREAK_SYSTEM_PACKAGES", "UV_BUILD_CONSTRAINT", "UV_COMPILE_BYTECODE", "UV_CONSTRAINT",
    "UV_CUSTOM_COMPILE_COMMAND", "UV_EXCLUDE", "UV_NO_BINARY", "UV_NO_BINARY_PACKAGE",
    "UV_NO_VERIFY_HASHES", "UV_OVERRIDE", "UV_PRERELEASE", "UV_PYTHON", "UV_REQUIRE_HASHES",
    "UV_RESOLUTION", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_TORCH_BACKEND", "UV_WORKING_DIRECTORY",
    "VIRTUAL_ENV", "CONDA_PREFIX",
})  # fmt: skip
_TIMEOUT = 60.0  # seconds without a byte
_BY_HAND = "or download the file yourself and name it with `path` in pyproject.toml"
_NO_LOGIN = re.compile(r"\b(401|403)\b|[Uu]nauthorized|[Ff]orbidden|credentials")
_NO_NETWORK = re.compile(
    r"error sending request|network was disabled|network connectivity is disabled|dns error"
    r"|[Cc]onnection|timed out|[Cc]ould not connect"
)
_NOT_THERE = re.compile(r"not found in|there is no version|no version of|No solution found")


class Found(NamedTuple):
    """A distribution file as the index in use offers it."""

    file: str
    sha256: str
    address: str


def find_distribution(config: UpstreamConfig, root: Path) -> Found:
    """Return the wheel (or sdist) of the pinned version that the index offers.

    Of several wheels it is the pure one, else the one that fits this Python best.
    Raises PatchwrightError.
    """
    # A pinned version's files hardly change: without a network uv's cache is as good.
    arguments = (
        "pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--format", "pylock.toml",
        "-",
    )  # fmt: skip
    online = _uv(arguments, _requirement(config), root)
    done = (
        online
        if online.returncode == 0
        else _uv((*arguments, "--offline"), _requirement(config), root)
    )
    if done.returncode:
        _refuse(config, online.stderr)
    package = tomllib.loads(done.stdout)["packages"][0]
    entries = package.get("wheels", []) if config.source == "wheel" else [package.get("sdist")]
    found = {f.file: f for f in reversed([_found(config, e, root) for e in entries if e])}
    name = _best_wheel(list(found)) if config.source == "wheel" else next(iter(found), None)
    if name is None:
        offered = ", ".join(sorted(found)) or "none"
        raise PatchwrightError(
            f"the index in use has no {config.source} of it for this Python (offered: {offered})",
            where=_pin(config), next_step="choose another `source` in pyproject.toml",
        )  # fmt: skip
    return found[name]


def install_wheel(
    config: UpstreamConfig, locked: LockedUpstream, target: Path, root: Path, *,
    fresh: bool = False, holds: int = -1,
) -> None:  # fmt: skip
    """Let uv unpack exactly the locked wheel into ``target``; uv verifies its sha256.

    The cache is tried first. ``fresh`` passes it by: it may hold files that were edited
    in place. ``holds`` is the descriptor of a lock that uv keeps until it has ended, even
    where this process is killed. Raises PatchwrightError.
    """
    arguments = (
        "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:",
        "--target", str(target), "-r", "-",
    )  # fmt: skip
    requirement = f"{_requirement(config).strip()} --hash=sha256:{locked.sha256}\n"
    if not fresh and _uv((*arguments, "--offline"), requirement, root, holds).returncode == 0:
        return
    done = _uv((*arguments, "--no-cache") if fresh else arguments, requirement, root, holds)
    if done.returncode:
        _refuse(config, done.stderr)


def download(
    config: UpstreamConfig,
    locked: LockedUpstream,
    archives: Path,
    root: Path,
    progress: Progress,
) -> Path:
    """Return the locked archive, kept below ``archives`` by its sha256.

    Raises PatchwrightError; nothing is kept of a file with another hash.
    """
    file, sha256 = str(locked.file), str(locked.sha256)
    path = archives / sha256 / file
    if path.is_file() and sha256_of(path) == sha256:
        return path
    found = find_distribution(config, root)
    if found.sha256 != sha256:
        _refuse_hash(config, found.file, sha256, found.sha256)
    progress(f"downloading {file}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{file}.part")
    try:
        _stream(config, found.address, part)
        actual = sha256_of(part)
        if actual != sha256:
            _refuse_hash(config, file, sha256, actual)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _uv(
    arguments: tuple[str, ...], requirement: str, root: Path, holds: int = -1
) -> subprocess.CompletedProcess[str]:
    import sys

    import uv

    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _DROPPED and not name.startswith(("GIT_", "PYTHON"))
    }
    # In the project's folder uv also finds the project's own index settings.
    command = [
        uv.find_uv_bin(),
        *arguments,
        "--quiet",
        "--color",
        "never",
        "--python",
        sys.executable,
    ]
    return subprocess.run(
        command, input=requirement, capture_output=True, env=env, cwd=root, check=False,
        encoding="utf-8", errors="replace", pass_fds=(holds,) if holds >= 0 else (),
    )  # fmt: skip


def _requirement(config: UpstreamConfig) -> str:
    return f"{_pin(config)}\n"


def _pin(config: UpstreamConfig) -> str:
    if config.distribution is None:
        raise PatchwrightError(
            f"upstream {config.name} names no distribution", where="pyproject.toml",
            next_step="add `distribution`, or `path` to a local file",
        )  # fmt: skip
    return f"{config.distribution}=={config.version}"


def _found(config: UpstreamConfig, entry: dict[str, Any], root: Path) -> Found:
    address = entry.get("url") or (root / str(entry.get("path", ""))).as_uri()
    path = unquote(urlsplit(address).path)
    name = str(entry.get("name") or path.rpartition("/")[2])
    sha256 = str(entry.get("hashes", {}).get("sha256", ""))
    if not sha256:
        raise PatchwrightError(
            f"the index gives no sha256 for {name}", where=_pin(config),
            next_step=f"use an index that does, {_BY_HAND}",
        )  # fmt: skip
    return Found(name, sha256, address)


def _best_wheel(names: list[str]) -> str | None:
    from packaging.tags import Tag, sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    order = {tag: at for at, tag in enumerate(sys_tags())}
    # A pure wheel is the same for everyone, so the lock is too.
    order[Tag("py3", "none", "any")] = -1
    ranked = []
    for name in names:
        try:
            tags = parse_wheel_filename(name)[3]
        except InvalidWheelFilename:
            continue
        fitting = [order[tag] for tag in tags if tag in order]
        if fitting:
            ranked.append((min(fitting), name))
    return min(ranked)[1] if ranked else None


def _stream(config: UpstreamConfig, address: str, target: Path) -> None:
    import shutil
    import urllib.error
    import urllib.request

    parts = urlsplit(address)
    if parts.scheme not in ("https", "http", "file"):
        raise PatchwrightError(
            f"an address with {parts.scheme}:// is not fetched", where=_pin(config),
            next_step=f"use an index with https, {_BY_HAND}",
        )  # fmt: skip
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(bare, headers={"User-Agent": "patchwright"})  # noqa: S310
    login = _login(parts.hostname or "", parts.username, parts.password)
    if login:
        # Not sent on to where the index redirects.
        request.add_unredirected_header("Authorization", login)
    try:
        with (
            urllib.request.urlopen(request, timeout=_TIMEOUT) as response,  # noqa: S310
            target.open("wb") as out,
        ):
            shutil.copyfileobj(response, out)
    except urllib.error.HTTPError as error:
        _refuse(config, f"{error.code} {error.reason}")
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        _refuse(config, f"connection failed: {getattr(error, 'reason', error)}")


def _login(host: str, user: str | None, password: str | None) -> str | None:
    import base64
    import netrc

    if user is None:
        try:
            entry = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
        except (OSError, netrc.NetrcParseError):
            return None
        if entry is None:
            return None
        user, _, password = entry
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _refuse(config: UpstreamConfig, stderr: str) -> NoReturn:
    """Turn uv's words into one message with the step that fits."""
    where = _pin(config)
    pair = re.search(r"Expected:\s+sha256:(\w+)\s+Computed:\s+sha256:(\w+)", stderr)
    if pair:
        _refuse_hash(config, where, pair[1], pair[2])
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    detail = "; ".join(lines)[:600] or "uv gave no reason"
    if _NO_LOGIN.search(stderr):
        raise PatchwrightError(
            f"the package index refuses access ({detail})", where=where,
            next_step=f"give uv the login (UV_INDEX_<NAME>_USERNAME, …, or netrc), {_BY_HAND}",
        )  # fmt: skip
    if _NO_NETWORK.search(stderr):
        raise PatchwrightError(
            f"the package index cannot be reached ({detail})", where=where,
            next_step=f"check network, proxy and UV_DEFAULT_INDEX, {_BY_HAND}",
        )  # fmt: skip
    if _NOT_THERE.search(stderr):
        raise PatchwrightError(
            f"the package index in use does not have it ({detail})", where=where,
            next_step=f"correct version or distribution, set UV_DEFAULT_INDEX, {_BY_HAND}",
        )  # fmt: skip
    raise PatchwrightError(f"uv failed ({detail})", where=where, next_step="correct what uv names")


def _refuse_hash(config: UpstreamConfig, where: str, expected: str, actual: str) -> NoReturn:
    raise PatchwrightError(
        f"wrong sha256: {expected} is locked, the index has {actual}", where=where,
        next_step="find out why the file changed; `patchwright lock --upgrade` accepts the new "
        f"one of upstream {config.name}",
    )  # fmt: skip
