"""`serve`: runs over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from fastformer.cli.options import Device, Dtype, Threads


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Run folders or exports, or NAME=RUN. The first answers at the root."),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 means every address of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="FASTFORMER_API_KEY", help="Answer only requests with `Authorization: Bearer KEY`."),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Also answer web pages of this origin. Repeatable.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder for what must outlive the server, such as what users did [default: nothing is kept]."
        ),
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; further ones get 429.")] = 512,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="About how many tokens run together, as one batch.")
    ] = 32_768,
    wait: Annotated[
        float,
        typer.Option(min=0, max=1000, metavar="MS", help="Milliseconds that an idle model waits for further requests."),
    ] = 0,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds after which a request is answered with 504.")
    ] = 60.0,
    grace: Annotated[
        float, typer.Option(min=1, max=86_400, help="Seconds to finish running requests after a stop.")
    ] = 30.0,
    max_body: Annotated[int, typer.Option(min=1, metavar="BYTES", help="The largest request.")] = 16_000_000,
    max_inputs: Annotated[int, typer.Option(min=1, help="Most inputs per request.")] = 1024,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are longer than the model reads, instead of refusing.")
    ] = False,
    threads: Threads = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Serve runs over HTTP, with a page to try them on.

    It has the routes of text-embeddings-inference, OpenAI's /v1/embeddings, the Open Inference Protocol and the run's
    task; /docs lists them all. On SIGTERM the server finishes the running requests and ends. On SIGHUP it reads the run
    folders again.

    Example: `fastformer serve runs/quickstart`
    """
    from fastformer.serve.limits import Limits
    from fastformer.serve.server import named_runs
    from fastformer.serve.server import serve as run

    limits = Limits(
        body=max_body,
        inputs=max_inputs,
        queue=queue,
        batch_tokens=batch_tokens,
        wait=wait / 1000,
        timeout=timeout,
        truncate=truncate,
    )
    run(
        named_runs(runs),
        host=host,
        port=port,
        limits=limits,
        api_key=api_key,
        cors=cors or (),
        state=state,
        grace=grace,
        threads=threads,
        device=device,
        dtype=dtype,
    )
