"""`spillway gateway`: HTTP and gRPC clients ask pipelines that are served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spillway.agents import log
from spillway.agents.cli.addresses import address, refuse_open
from spillway.agents.cli.cluster import find_cluster
from spillway.agents.cli.options import cluster_options, listed_pipelines, log_format, metrics_options, run_dir_option

if TYPE_CHECKING:
    from spillway.agents.live.registry import Address

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command()
@listed_pipelines
@cluster_options
@run_dir_option
@metrics_options
@log_format
@click.option("--http", default="127.0.0.1:8080", show_default=True, callback=address, metavar="HOST:PORT")
@click.option("--grpc", callback=address, metavar="HOST:PORT", help="Answer gRPC, too (extra grpc).  [default: no]")
@click.option("--replica", type=click.IntRange(0), default=0, help="Which one of several gateways this is.")
@click.option("--tokens", type=_FILE, help="A file of tokens: on each line TOKEN NAME [PIPELINE ...].")
@click.option("--allow-host", "allowed_hosts", multiple=True, metavar="NAME", help="Another name of this host.")
@click.option("--secret", type=_FILE, help="A file with a secret that gateways on several hosts share.")
@click.option("--tls-cert", type=_FILE, help="The certificate, to speak TLS.")
@click.option("--tls-key", type=_FILE, help="Its key.")
@click.option("--tls-client-ca", type=_FILE, help="Ask clients for a certificate of this authority.")
@click.option("--parent", type=int, hidden=True)
def gateway(pipelines: tuple[Path, ...], parent: int | None, **options: Any) -> int:
    """Answer HTTP and gRPC requests with predictions of pipelines that are served.

    \b
    POST /v2/models/NAME/infer          the Open Inference Protocol (v2), as JSON or with binary tensors
    POST /v1/pipelines/NAME/predict     plain JSON: {"inputs": {...}}
    GET  /openapi.json                  what else there is

    Without a file of tokens it answers whoever asks, and listens on this machine alone unless --allow-host names it.
    Any number of gateways may run beside one another.

    \b
    Examples:
      spillway gateway examples/hello/pipeline.yaml
      curl -s localhost:8080/v1/pipelines/hello/predict \\
           -H 'Content-Type: application/json' -d '{"inputs": {"name": "Ada"}}'
    """  # noqa: D301 - click's own marks
    if parent is not None:
        from spillway.agents.supervise.parent import follow_parent  # noqa: PLC0415 - first of all

        follow_parent(parent)
    from spillway.agents.gateway.process import GatewayConfig, run  # noqa: PLC0415 - help does without
    from spillway.agents.live.registry import Address  # noqa: PLC0415 - the same
    from spillway.topology.load import load  # noqa: PLC0415

    http: Address = options["http"]
    loaded = tuple(load(path) for path in pipelines)
    for listening in filter(None, (http, options["grpc"])):
        refuse_open(listening, options["tokens"], options["allowed_hosts"])
    log.to_stderr(options["log_format"], "gateway", options["replica"])
    config = GatewayConfig(
        pipelines=loaded,
        settings=find_cluster(
            options["bootstrap"], options["client_config"], run_dir=options["run_dir"], pipeline=loaded[0].spec.name
        ),
        run_dir=options["run_dir"],
        metrics=Address(options["metrics_host"], options["metrics_port"] or 0),
        **{name: options[name] for name in _CONFIGURED},
    )
    return run(config, lambda port: click.echo(f"http://{http.host}:{port}"))


_CONFIGURED = ("http", "grpc", "replica", "tokens", "allowed_hosts", "secret", "tls_cert", "tls_key", "tls_client_ca")
