"""One source of a module, one architecture, one compiler: the nvcc calls for it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from patchwright.smoke.compile_errors import explain
from patchwright.smoke.compiler import (
    Compiler,
    Completed,
    find_compiler,
    require_memory,
    run,
    wheel_includes,
)
from patchwright.smoke.jit import JitSpec, target
from patchwright.smoke.objects import ObjectCache
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.preprocessed import Preprocessed, device_preprocessor
from patchwright.smoke.provenance import require_tree_files

Kind = Literal["cubin", "ptx"]


@dataclass(frozen=True)
class Job:
    """What is compiled: ``text`` in place of ``source`` when it is given."""

    spec: JitSpec
    source: Path
    text: str | None
    gencode: str
    compiler: Compiler

    @classmethod
    def prepare(
        cls,
        spec: JitSpec,
        source: str | Path,
        arch: str | None,
        *,
        text: str | None = None,
        compiler: Compiler | None = None,
    ) -> Job:
        """Return the job for one of the module's sources and architectures.

        Raises SmokeError for a source that is none or an architecture that the
        generator emits no code for, Blocked when there is no compiler.
        """
        wanted = dict.fromkeys(
            gencode
            for gencode, emitted in zip(spec.gencode, spec.targets, strict=True)
            if arch is None or emitted == target(arch)
        )
        if len(wanted) != 1:
            emitted = ", ".join(spec.targets) or "nothing"
            raise SmokeError(f"{spec.name} is built for {emitted}, asked for {arch or 'one'}")
        path = spec.source(source)
        if path.suffix != ".cu":
            raise SmokeError(f"{path.name} is not CUDA source")
        return cls(spec, path, text, next(iter(wanted)), compiler or find_compiler())

    def preprocess(self, folder: Path, deadline: float) -> Preprocessed:
        """Run the preprocessor of the device pass as nvcc would, in a private folder."""
        command = self._command(folder, "unused.cubin")
        planned = self._run([*command, "-cubin", "--dryrun"], folder, deadline)
        argv, env = device_preprocessor(planned.stderr)
        done = self._run(argv, folder, deadline, env)
        own_flags = tuple(flag for flag, is_search in self._flags() if not is_search)
        text = Preprocessed.of(done.stdout, own_flags, Path(self._site))
        require_tree_files(self.spec.trees, text.files)
        return text

    def compile(
        self, kinds: Sequence[Kind], cache: ObjectCache, memory: int, deadline: float
    ) -> list[bytes]:
        """Return an object of each kind; the same text and flags are compiled once.

        PTX lies on the way to a cubin: where both are asked, one compile makes both.
        ``memory`` is what the compiler may need, in bytes; ``deadline`` in seconds.
        """
        with tempfile.TemporaryDirectory(prefix="patchwright-nvcc-") as name:
            folder = Path(name)
            text = self.preprocess(folder, deadline)
            made: dict[Kind, bytes] = {}

            def make(kind: Kind) -> bytes:
                if kind not in made:
                    require_memory(memory)
                    kept = folder / "kept"
                    kept.mkdir(exist_ok=True)
                    both = kind == "cubin" and "ptx" in kinds
                    keep = ["--keep", f"--keep-dir={kept}"] if both else []
                    output = folder / f"object.{kind}"
                    command = self._command(folder, str(output))
                    self._run([*command, f"-{kind}", *keep], folder, deadline)
                    made[kind] = output.read_bytes()
                    if both:
                        (ptx,) = kept.glob("*.ptx")
                        made["ptx"] = ptx.read_bytes()
                return made[kind]

            found = []
            for kind in kinds:
                parts = (kind, text.digest, self.gencode, self.compiler.identity)
                key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
                found.append(cache.get(key, partial(make, kind)))
            return found

    def _run(
        self, argv: list[str], folder: Path, deadline: float, env: Mapping[str, str] | None = None
    ) -> Completed:
        # nvcc leaves its temporary files behind when it is killed.
        own = {"TMPDIR": str(folder)} | dict(env or {})
        done = run(argv, deadline=deadline, cwd=folder, env=own)
        if done.returncode:
            explain(done.stderr, self._site)
        return done

    @property
    def _site(self) -> str:
        return str(self.spec.trees.site.absolute())

    def _flags(self) -> list[tuple[str, bool]]:
        """Return the flags but the architectures, each with whether it is a search path."""
        flags = []
        previous = ""
        for flag in self.spec.nvcc_flags:
            if not flag.startswith("-gencode="):
                is_search = previous in {"-isystem", "-I"} or flag.startswith(("-I", "-isystem"))
                flags.append((flag, is_search))
            previous = flag
        return flags

    def _command(self, folder: Path, output: str) -> list[str]:
        """Return the nvcc command but for the kind of its output."""
        places = {
            "$cuda_home": str(self.compiler.home),
            "$site": self._site,
            "$workspace": str(self.spec.workspace),
        }
        flags = [flag for flag, _ in self._flags()]
        for name, place in places.items():
            flags = [flag.replace(f"{name}/", f"{place}/") for flag in flags]
        source = self.source
        if self.text is not None:
            source = folder / f"{self.source.stem}.text.cu"
            source.write_bytes(self.text.encode("utf-8", "surrogateescape"))
            # What the source includes relative to itself must still be found.
            flags += [f"-I{self.source.parent}"]
        # The run's folders must not get into __FILE__, and with it into the objects.
        hidden = {"/site": self._site, "/workspace": self.spec.workspace, "/text": folder}
        host = [f"-fmacro-prefix-map={place}={name}" for name, place in hidden.items()]
        host += [f"-idirafter,{path}" for path in wheel_includes(self.compiler)]
        flags += [f"--compiler-options={option}" for option in host]
        return [
            str(self.compiler.nvcc), *flags, f"-gencode={self.gencode}", str(source), "-o", output
        ]  # fmt: skip
