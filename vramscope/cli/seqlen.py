"""What `vramscope seqlen` runs, prints and writes."""

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.files.base.output_file import check_writable
from vramscope.engine.jobs.launch import DEFAULT_CONTEXT_BYTES
from vramscope.engine.model.phase_memory import (
    PRIVACY_MODES,
    FitSearch,
    FitSize,
    LengthStudy,
    PhaseRun,
    PhaseTraining,
    PrivacyMode,
)
from vramscope.engine.settings import Settings
from vramscope.engine.workloads.llama_presets import LLAMA_PRESETS
from vramscope.exporters.seqlen.figure import LengthLook
from vramscope.phases.running import check_training, count_ranks
from vramscope.phases.seqlen import FitTask, run_lengths, run_without_storage, search_fit

from .frame.emit import complain, emit_fitted, emit_json
from .frame.errors import EXIT_INTERRUPTED, unwinding_on_signals
from .frame.flags import FigureTarget, choose_fit_code, pick, refuse
from .frame.progress import ProgressLine
from .frame.settings import read_settings

DEFAULT_LENGTHS = (64, 128, 256, 512, 1024, 2048)
DEFAULT_LENGTH = 128
DEFAULT_STEP = 64
MOST_LENGTHS = 64
_MOST_DIGITS = 9


class LengthRequest(NamedTuple):
    # Its sequence length is for the search of the largest batch.
    training: PhaseTraining
    device: str
    # Empty where only `--fit` was given.
    lengths: tuple[int, ...]
    modes: tuple[PrivacyMode, ...]
    # Memory that must suffice; None without `--fit`.
    capacity_bytes: int | None
    step: int
    figure: FigureTarget | None
    look: LengthLook
    csv: Path | None
    form: str


def read_length_request(arguments: Namespace) -> LengthRequest:
    from .verbs.phases import read_training

    if count_ranks(os.environ) > 1:
        raise UsageError("seqlen does not run under torchrun: it trains in one process at a time")
    modes = _read_modes(arguments)
    if arguments.fit is None:
        refuse(pick(arguments, ("seq", "step")), "needs --fit; for the lengths to run use --seq-lengths")
    capacity_bytes: int | None = arguments.fit
    training = read_training(
        arguments,
        seq_length=DEFAULT_LENGTH if arguments.seq is None else arguments.seq,
        num_steps=arguments.num_steps,
        privacy=modes[0],
    )
    check_training(training, os.environ)
    step = DEFAULT_STEP if arguments.step is None else arguments.step
    if step < 1:
        raise UsageError(f"--step {step}: expected a whole number, 1 or more")
    request = LengthRequest(
        training=training,
        device=_choose_device(arguments, capacity_bytes),
        lengths=_read_lengths(arguments.seq_lengths, has_default=capacity_bytes is None),
        modes=modes,
        capacity_bytes=capacity_bytes,
        step=step,
        figure=arguments.figure,
        look=_read_look(arguments),
        csv=arguments.csv,
        form="json" if arguments.json else arguments.format or "text",
    )
    _check_files(request)
    return request


def _read_lengths(words: list[str] | None, *, has_default: bool) -> tuple[int, ...]:
    if words is None:
        return DEFAULT_LENGTHS if has_default else ()
    texts = [text for word in words for text in word.split(",") if text]
    lengths: list[int] = []
    for text in texts:
        length = int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
        if length < 1:
            raise UsageError(f"--seq-lengths {text}: expected whole numbers above 0, for example 64 128 256")
        if length in lengths:
            raise UsageError(f"--seq-lengths: {length} is given twice; give each length once")
        lengths.append(length)
    if not 0 < len(lengths) <= MOST_LENGTHS:
        raise UsageError(f"--seq-lengths: expected 1 to {MOST_LENGTHS} lengths, got {len(lengths)}")
    return tuple(sorted(lengths))


def _read_modes(arguments: Namespace) -> tuple[PrivacyMode, ...]:
    if arguments.compare is None:
        return (arguments.dp_mode,)
    names = [name for word in arguments.compare for name in word.split(",") if name]
    for name in names:
        if name not in PRIVACY_MODES:
            raise UsageError(f"--compare {name}: expected some of {', '.join(PRIVACY_MODES)}")
    if len(set(names)) < len(names) or len(names) < 2:
        raise UsageError(f"--compare {','.join(names)}: expected two or more different algorithms")
    return tuple(cast("list[PrivacyMode]", names))


def _choose_device(arguments: Namespace, capacity_bytes: int | None) -> str:
    device: str = arguments.device or "cuda"
    if capacity_bytes is None:
        return device
    if arguments.device in (None, "simulate"):
        return f"simulate:{capacity_bytes}"
    if device != "cuda":
        raise UsageError(
            f"--device {device} does not go with --fit: leave it out for a simulated GPU of that size, or "
            "use --device cuda"
        )
    return device


def _read_look(arguments: Namespace) -> LengthLook:
    if arguments.figure is None:
        refuse(pick(arguments, ("style", "figsize", "dpi")), "needs a figure: add --figure FILE")
    size_in = None if arguments.figsize is None else tuple(arguments.figsize)
    return LengthLook(
        style=arguments.style or "usenix",
        size_in=cast("tuple[float, float] | None", size_in),
        dpi=None if arguments.dpi is None else int(arguments.dpi),
    )


def _check_files(request: LengthRequest) -> None:
    """Refuse files that cannot be written, before anything runs."""
    for flag, given in (("--figure", request.figure), ("--csv", request.csv)):
        if given is not None and not request.lengths:
            raise UsageError(f"{flag} shows memory by length and needs --seq-lengths")
    if request.csv is not None:
        check_writable(request.csv)
    if request.figure is not None:
        request.figure.check()
    if request.form == "original" and not request.lengths:
        raise UsageError("--format original is a table by length and needs --seq-lengths")


PROGRAM = "vramscope seqlen"
_EXIT_FAILED = 1
_INTERRUPTED = "interrupted"


def measure_lengths(arguments: Namespace) -> int:
    request = read_length_request(arguments)
    if arguments.fail_on is not None and request.capacity_bytes is None:
        raise UsageError("--fail-on unfit needs the memory that it is to fit: --fit SIZE")
    settings = read_settings(arguments)
    _warn_of_long_ones(request)
    with unwinding_on_signals():
        study = _run_study(request)
        searches = [] if study.is_interrupted else list(_search(request, study))
    _write_files(request, study)
    _print(request, study, searches, settings)
    if study.is_interrupted or any(search.refusal == _INTERRUPTED for search in searches):
        return EXIT_INTERRUPTED
    has_failed = study.points and all(run.end == "failed" for run in study.runs)
    if has_failed:
        return _EXIT_FAILED
    is_unfit = any(search.trials and search.largest is None for search in searches)
    return choose_fit_code(arguments, does_fit=not is_unfit)


def _run_study(request: LengthRequest) -> LengthStudy:
    if not request.lengths:
        return LengthStudy(
            training=request.training, device=request.device, lengths=(), privacy_modes=request.modes
        )
    total = len(request.lengths) * len(request.modes)
    notes: set[str] = set()

    def show_point(study: LengthStudy) -> None:
        for note in {run.device.note for run in study.runs if run.device.kind == "simulated"} - notes:
            if note is not None and request.device == "cuda":
                complain(note, program=PROGRAM)
                notes.add(note)
        progress.show_count(len(study.points), total)

    with ProgressLine(PROGRAM, "runs", is_eager=True) as progress:
        progress.show_count(0, total)
        return run_lengths(
            request.training,
            request.device,
            request.lengths,
            request.modes,
            run=run_without_storage,
            on_point=show_point,
        )


def _search(request: LengthRequest, study: LengthStudy) -> Iterator[FitSearch]:
    """Yield the largest batch and length of each algorithm, until one search is interrupted."""
    if request.capacity_bytes is None:
        return
    sizes: tuple[tuple[FitSize, int], ...] = (("batch size", 1), ("sequence length", request.step))
    for varied, step in sizes:
        for mode in request.modes:
            task = FitTask(
                training=msgspec.structs.replace(request.training, privacy=mode),
                device=request.device,
                varied=varied,
                step=step,
                capacity_bytes=request.capacity_bytes,
                context_bytes=DEFAULT_CONTEXT_BYTES,
            )
            known = _find_known(study, mode) if varied == "sequence length" else {}
            search = search_fit(task, known=known, run=run_without_storage, on_trial=_print_trial)
            yield search
            if search.refusal == _INTERRUPTED:
                return


def _find_known(study: LengthStudy, mode: PrivacyMode) -> dict[int, PhaseRun]:
    return {
        point.seq_length: point.run
        for point in study.points
        if point.privacy == mode and point.run is not None and point.run.end in ("finished", "out_of_memory")
    }


def _print_trial(search: FitSearch) -> None:
    from vramscope.exporters.seqlen.text import describe_trial

    complain(describe_trial(search, search.trials[-1]), program=PROGRAM)


def _warn_of_long_ones(request: LengthRequest) -> None:
    """Note which lengths are beyond those of a preset; rotary embeddings still run with them."""
    sizes = LLAMA_PRESETS.get(request.training.model_size or "")
    beyond = [length for length in request.lengths if sizes is not None and length > sizes.max_positions]
    if sizes is not None and beyond:
        named = ", ".join(f"{length:,}" for length in beyond)
        complain(
            f"{named} tokens: more than the {sizes.max_positions:,} positions of LLaMA "
            f"{request.training.model_size}; they run, because rotary embeddings have no limit",
            program=PROGRAM,
        )


def _write_files(request: LengthRequest, study: LengthStudy) -> None:
    if request.figure is not None and study.runs:
        from vramscope.exporters.figures.page import save_figure
        from vramscope.exporters.seqlen.figure import draw_lengths

        page = draw_lengths(study, request.look)
        for path in request.figure.list_files("sequence_lengths"):
            save_figure(page, path)
            complain(f"wrote {path}", program=PROGRAM)
    if request.csv is not None:
        from vramscope.engine.files.base.output_file import write_whole
        from vramscope.exporters.seqlen.text import encode_study

        write_whole(encode_study(study), request.csv)
        complain(f"wrote {request.csv}", program=PROGRAM)


def _print(
    request: LengthRequest, study: LengthStudy, searches: Sequence[FitSearch], settings: Settings
) -> None:
    if request.form == "json":
        from vramscope.exporters.seqlen.text import report_study

        emit_json(report_study(study, searches))
        return

    emit_fitted(settings, lambda width: "\n".join(_describe(request, study, searches, width)))


def _describe(
    request: LengthRequest, study: LengthStudy, searches: Sequence[FitSearch], width: int
) -> Iterator[str]:
    from vramscope.exporters.seqlen.figure import describe_study_as_original
    from vramscope.exporters.seqlen.text import describe_fits, describe_study

    if study.lengths:
        yield (
            describe_study_as_original(study) if request.form == "original" else describe_study(study, width)
        )
    if searches:
        yield describe_fits(searches, width)
