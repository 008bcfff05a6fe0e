"""Finds and fetches distributions by name, version and hash, through uv.

uv brings the user's own index settings, credentials and cache. No address is kept:
what identifies a distribution is its file name and sha256.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from patchwright.config import UpstreamConfig
from patchwright.errors import PatchwrightError
from patchwright.lock import LockedUpstream
from patchwright.upstreams import Progress
from patchwright.upstreams.archive import sha256_of
from patchwright.uv import BY_HAND, refuse, run_uv, wrong_hash

_TIMEOUT = 60.0  # seconds without a byte


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
    requirement = _requirement(config)
    online = run_uv(*arguments, root=root, data=requirement)
    done = online
    if online.returncode:
        done = run_uv(*arguments, "--offline", root=root, data=requirement)
    if done.returncode:
        _refuse(config, online.stderr)
    package = tomllib.loads(done.stdout)["packages"][0]
    entries = package.get("wheels", []) if config.source == "wheel" else [package.get("sdist")]
    found = {f.file: f for f in reversed([entry_of(e, root, _pin(config)) for e in entries if e])}
    name = _best_wheel(list(found)) if config.source == "wheel" else next(iter(found), None)
    if name is None:
        offered = ", ".join(sorted(found)) or "none"
        raise PatchwrightError(
            f"the index in use has no {config.source} of it for this Python (offered: {offered})",
            where=_pin(config), next_step="choose another `source` in pyproject.toml",
        )  # fmt: skip
    return found[name]


def newest_version(config: UpstreamConfig, root: Path) -> str:
    """Return the newest version that the index offers for this Python, pre-releases left out.

    Raises PatchwrightError.
    """
    name = _pin(config).partition("==")[0]
    arguments = ("pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--upgrade", "-")
    done = run_uv(*arguments, root=root, data=f"{name}\n")
    if done.returncode:
        _refuse(config, done.stderr)
    lines = [line.strip().partition("==")[2] for line in done.stdout.splitlines()]
    found = next((version for version in lines if version), "")
    if not found:
        _refuse(config, "uv named no version")
    return found


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
    if not fresh:
        done = run_uv(*arguments, "--offline", root=root, data=requirement, holds=holds)
        if done.returncode == 0:
            return
    more = ("--no-cache",) if fresh else ()
    done = run_uv(*arguments, *more, root=root, data=requirement, holds=holds)
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
    kept = kept_archive(locked, archives)
    if kept is not None:
        return kept
    found = find_distribution(config, root)
    if found.sha256 != sha256:
        _refuse_hash(config, found.file, sha256, found.sha256)
    progress(f"downloading {file}")
    return fetch_file(found._replace(file=file), archives, _pin(config))


def kept_archive(locked: LockedUpstream, archives: Path) -> Path | None:
    """Return the locked archive where it is kept, with the right sha256."""
    path = archives / str(locked.sha256) / str(locked.file)
    return path if path.is_file() and sha256_of(path) == locked.sha256 else None


def fetch_file(found: Found, archives: Path, where: str) -> Path:
    """Return a file of the index, kept below ``archives`` by its sha256.

    ``where`` is what errors name. Raises PatchwrightError; nothing is kept of a file
    with another hash.
    """
    path = archives / found.sha256 / found.file
    if path.is_file() and sha256_of(path) == found.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{found.file}.part")
    try:
        _stream(where, found.address, part)
        actual = sha256_of(part)
        if actual != found.sha256:
            raise PatchwrightError(
                f"wrong sha256: {found.sha256} is locked, the index has {actual}", where=where,
                next_step="find out why the file changed; `patchwright lock --upgrade` accepts "
                "the new one",
            )  # fmt: skip
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _requirement(config: UpstreamConfig) -> str:
    return f"{_pin(config)}\n"


def _pin(config: UpstreamConfig) -> str:
    if config.distribution is None:
        raise PatchwrightError(
            f"upstream {config.name} names no distribution", where="pyproject.toml",
            next_step="add `distribution`, or `path` to a local file",
        )  # fmt: skip
    return f"{config.distribution}=={config.version}"


def entry_of(entry: dict[str, Any], root: Path, where: str) -> Found:
    """Return one file as uv's pylock.toml describes it; PatchwrightError without a sha256."""
    address = entry.get("url") or (root / str(entry.get("path", ""))).as_uri()
    path = unquote(urlsplit(address).path)
    name = str(entry.get("name") or path.rpartition("/")[2])
    sha256 = str(entry.get("hashes", {}).get("sha256", ""))
    if not sha256:
        raise PatchwrightError(
            f"the index gives no sha256 for {name}", where=where,
            next_step=f"use an index that does, {BY_HAND}",
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


def _stream(where: str, address: str, target: Path) -> None:
    import shutil
    import urllib.error
    import urllib.request

    parts = urlsplit(address)
    if parts.scheme not in ("https", "http", "file"):
        raise PatchwrightError(
            f"an address with {parts.scheme}:// is not fetched", where=where,
            next_step=f"use an index with https, {BY_HAND}",
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
        refuse(f"{error.code} {error.reason}", where, by_hand=BY_HAND)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        refuse(f"connection failed: {getattr(error, 'reason', error)}", where, by_hand=BY_HAND)


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
    pair = wrong_hash(stderr)
    if pair:
        _refuse_hash(config, _pin(config), *pair)
    refuse(stderr, _pin(config), by_hand=BY_HAND)


def _refuse_hash(config: UpstreamConfig, where: str, expected: str, actual: str) -> NoReturn:
    raise PatchwrightError(
        f"wrong sha256: {expected} is locked, the index has {actual}", where=where,
        next_step="find out why the file changed; `patchwright lock --upgrade` accepts the new "
        f"one of upstream {config.name}",
    )  # fmt: skip
