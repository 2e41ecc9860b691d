"""What `vramscope seqlen` runs, tells meanwhile, prints and writes."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.launch.simulated_device import DEFAULT_CONTEXT_BYTES
from vramscope.engine.model.length_memory import FitSearch, FitSize, LengthStudy
from vramscope.engine.model.phase_memory import PhaseRun, PrivacyMode
from vramscope.engine.settings import Settings
from vramscope.engine.workloads.llama_presets import LLAMA_PRESETS
from vramscope.phases.fitting import FitTask, search_fit
from vramscope.phases.lengths import run_lengths, run_without_storage

from .configuration import read_settings
from .diagnostics import EXIT_INTERRUPTED, complain
from .length_flags import LengthRequest, read_length_request
from .parser_flags import choose_fit_code
from .progress import ProgressLine
from .termination import unwinding_on_signals

PROGRAM = "vramscope seqlen"
_EXIT_FAILED = 1
_INTERRUPTED = "interrupted"


def measure_lengths(arguments: Namespace) -> int:
    """Train at each length, look for what fits, print and write it, and return the exit code.

    Raises:
        UsageError: A flag has a value that cannot be used, or nothing could be started.
        OutputFileError: A file cannot be written.
    """
    request = read_length_request(arguments)
    if arguments.fail_on is not None and request.capacity_bytes is None:
        raise UsageError("--fail-on unfit goes with --fit SIZE, into which it is to fit")
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

    def tell(study: LengthStudy) -> None:
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
            on_point=tell,
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
            search = search_fit(task, known=known, run=run_without_storage, on_trial=_tell_trial)
            yield search
            if search.refusal == _INTERRUPTED:
                return


def _find_known(study: LengthStudy, mode: PrivacyMode) -> dict[int, PhaseRun]:
    return {
        point.seq_length: point.run
        for point in study.points
        if point.privacy == mode and point.run is not None and point.run.end in ("finished", "out_of_memory")
    }


def _tell_trial(search: FitSearch) -> None:
    from vramscope.exporters.length_fit_text import describe_trial

    complain(describe_trial(search, search.trials[-1]), program=PROGRAM)


def _warn_of_long_ones(request: LengthRequest) -> None:
    """Say which lengths a preset is not meant for; its rotary embeddings have no table that would end."""
    sizes = LLAMA_PRESETS.get(request.training.model_size or "")
    beyond = [length for length in request.lengths if sizes is not None and length > sizes.max_positions]
    if sizes is not None and beyond:
        told = ", ".join(f"{length:,}" for length in beyond)
        complain(
            f"{told} tokens: beyond the {sizes.max_positions:,} positions that LLaMA "
            f"{request.training.model_size} is meant for; they run, because rotary embeddings set no limit",
            program=PROGRAM,
        )


def _write_files(request: LengthRequest, study: LengthStudy) -> None:
    """Write the figure and the CSV.

    Raises:
        OutputFileError: One of them cannot be written.
    """
    if request.figure is not None and study.runs:
        from vramscope.exporters.figures.length_panels import draw_lengths
        from vramscope.exporters.figures.saving import save_figure

        page = draw_lengths(study, request.look)
        for path in request.figure.list_files("sequence_lengths"):
            save_figure(page, path)
            complain(f"wrote {path}", program=PROGRAM)
    if request.csv is not None:
        from vramscope.engine.output_file import write_whole
        from vramscope.exporters.length_csv import encode_study

        write_whole(encode_study(study), request.csv)
        complain(f"wrote {request.csv}", program=PROGRAM)


def _print(
    request: LengthRequest, study: LengthStudy, searches: Sequence[FitSearch], settings: Settings
) -> None:
    if request.form == "json":
        from vramscope.exporters.json_lines import write_line
        from vramscope.exporters.length_report import report_study

        write_line(report_study(study, searches), sys.stdout.buffer)
        return

    from .printing import choose_style, emit

    style = choose_style(settings)
    text = "\n".join(_describe(request, study, searches, style.width))
    emit(text, is_ascii=style.is_ascii)


def _describe(
    request: LengthRequest, study: LengthStudy, searches: Sequence[FitSearch], width: int
) -> Iterator[str]:
    from vramscope.exporters.length_fit_text import describe_fits
    from vramscope.exporters.length_original import describe_study_as_original
    from vramscope.exporters.length_text import describe_study

    if study.lengths:
        yield (
            describe_study_as_original(study) if request.form == "original" else describe_study(study, width)
        )
    if searches:
        yield describe_fits(searches, width)
