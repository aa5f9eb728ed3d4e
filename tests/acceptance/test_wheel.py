"""The wheel, as users have it: built, and installed in two fresh environments, a client's and one that serves.

An environment has what the wheel's metadata require, with the extra `serve` or without any, and nothing else; of each
the release that is installed here, by links. So it takes seconds and no network. What is not checked: which releases
pip would choose, whether there is one for another system or Python, and that the jars of Kafka can be had (they are
cached here).
"""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from spillway.agents.broker.jars import ensure_jars
from spillway.agents.cli.options import cache_dir
from tests.acceptance.serving import READY_SECONDS, ROOT, STOP_SECONDS, serving
from tests.waiting import until

README = (ROOT / "README.md").read_text()
ROOMS = ("agents", "checkpoint", "lineage", "producers", "topology")
SECONDS = 300  # for a command; a net


def said(command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, check=False, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, as a build leaves its own behind in the folder, and would take in what one before has left."""
    source = tmp_path_factory.mktemp("source")
    for name in (*ROOMS, "spillway"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    said([*pip, "-q", "--no-index", "--no-deps", "--no-build-isolation", "-w", out, source])
    (file,) = out.glob("spillway-*.whl")
    return file


@pytest.fixture(scope="module")
def serves(wheel, tmp_path_factory):
    """The folder of the programs of an environment that serves pipelines."""
    return installed(wheel, tmp_path_factory.mktemp("serves"), "serve")


@pytest.fixture(scope="module")
def asks(wheel, tmp_path_factory):
    """The folder of the programs of a client's environment."""
    return installed(wheel, tmp_path_factory.mktemp("asks"))


def installed(wheel, folder, *extras):
    """Make an environment with the wheel and what it requires; return the folder of its programs."""
    said([sys.executable, "-m", "venv", "--without-pip", folder])
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={python}", "install"]
    said([*pip, "-q", "--no-index", "--no-deps", wheel])
    packages = Path(said([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    for name in ROOMS:  # as somebody else's distribution would have it beside ours
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("raise SystemExit('somebody else has run')\n")
    for path in files_of(required(wheel, *extras)):
        if not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    return folder / "bin"


def required(wheel, *extras):
    """Every distribution that the wheel's metadata require, directly or not."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = metadata.PathDistribution(zipfile.Path(archive, name.removesuffix("METADATA"))).requires or []
    left, found = [(text, extra) for text in told for extra in ("", *extras)], set()
    while left:
        text, extra = left.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            if (requirement.name, wanted) not in found:
                found.add((requirement.name, wanted))
                left += [(each, wanted) for each in metadata.requires(requirement.name) or []]
    return {name for name, _ in found}


def files_of(names):
    """What distributions have put into the folder of packages, one path for each of its entries."""
    for name in names:
        distribution = metadata.distribution(name)
        tops = {path.parts[0] for path in distribution.files or [] if path.parts[0] != ".."}
        yield from (Path(str(distribution.locate_file(top))) for top in sorted(tops) if top != "__pycache__")


def activated(programs, **more):
    """The variables of a user who has activated an environment, and nothing else."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("SPILLWAY_", "PYTHON"))}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **more}


@pytest.fixture(scope="module")
def environment(serves):
    return activated(serves)


@pytest.fixture
def copied(tmp_path):
    """A folder with the README's own pipeline and model, copied off the page."""
    for language, sign in (("yaml", "#"), ("python", "#")):
        for path, text in re.findall(rf"^```{language}\n{sign} (\S+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == {
        "examples/hello/pipeline.yaml",
        "examples/hello/hello.py",
    }
    return tmp_path


def test_it_holds_each_file_once_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = sorted(name for name in archive.namelist() if ".dist-info/" not in name)
        told = {name.split("/", 1)[1] for name in archive.namelist() if ".dist-info/" in name}
        links = [each.filename for each in archive.infolist() if stat.S_ISLNK(each.external_attr >> 16)]
    ours = [
        str(Path("spillway", path.relative_to(ROOT / "spillway" if name == "spillway" else ROOT)))
        for name in (*ROOMS, "spillway")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert held == sorted(ours)
    assert links == []
    assert told == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}


def test_a_client_weighs_little(wheel, capsys):
    told = {}
    for extras in ((), ("serve",)):
        names = sorted(required(wheel, *extras))
        sizes = [Path(metadata.distribution(name).locate_file(file)) for name in names for file in kept_files(name)]
        told[extras] = 1 + len(names), (wheel_bytes(wheel) + sum(file.stat().st_size for file in sizes)) / 1e6
        with capsys.disabled():
            label = f"spillway[{','.join(extras)}]" if extras else "spillway"
            print(f"\n{label}: {told[extras][0]} distributions, {told[extras][1]:.0f} MB installed", *names)
    count, megabytes = told[()]
    assert count <= 14
    assert megabytes <= 140


def kept_files(name):
    files = metadata.distribution(name).files or []
    return [file for file in files if file.suffix != ".pyc" and Path(file.locate()).is_file()]


def wheel_bytes(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return sum(each.file_size for each in archive.infolist())


def test_a_client_asks_and_sees_what_is_served(asks, tmp_path, broker, unique_name):
    pipeline = tmp_path / "hello.yaml"
    text = (ROOT / "examples/hello/pipeline.yaml").read_text()
    pipeline.write_text(text.replace("name: hello", f"name: {unique_name}"))
    shutil.copy(ROOT / "examples/hello/hello.py", tmp_path)
    env = activated(asks, SPILLWAY_BOOTSTRAP=broker)
    ask = tmp_path / "ask"  # a folder where nothing was served from
    ask.mkdir()
    with serving(pipeline, unique_name, broker, tmp_path):
        query = f'echo \'{{"name": "Ada"}}\' | spillway predict {pipeline} - --deadline 300'
        assert "Hello, Ada!" in said(["sh", "-c", query], cwd=ask, env=env)
        assert f"{unique_name}.ingress" in said(["spillway", "broker", "topics", "list", pipeline], cwd=ask, env=env)
        said(["spillway", "dead", "list", pipeline], cwd=ask, env=env)
        said(["spillway", "train", "feedback", "--help"], cwd=ask, env=env)


@pytest.mark.parametrize("command", ["serve", "replay", "whatif", "status"])
def test_a_command_that_serves_names_the_extra_in_one_line(copied, asks, broker, command):
    words = ["spillway", command, "examples/hello/pipeline.yaml"]
    done = subprocess.run(words, cwd=copied, env=activated(asks), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: \S+ is not installed; it comes with an extra: pip install 'spillway\[serve\]'\n", done.stderr
    )


def test_importing_a_client_loads_no_module_of_what_serves(asks):
    code = (
        "import sys; from spillway import Client; print(*(m for m in sys.modules if m.startswith('spillway.agents')))"
    )
    assert said([asks / "python", "-c", code], env=activated(asks)) == "\n"


def test_torch_comes_with_an_extra_alone(wheel, serves):
    assert "torch" not in required(wheel, "serve")
    code = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('spillway.agents').origin)"
    torch, agents = said([serves / "python", "-P", "-c", code]).split()
    assert torch == "None"
    assert Path(agents).is_relative_to(serves.parent)


@pytest.mark.nightly
def test_the_first_minute_of_the_readme(copied, environment):
    ensure_jars(cache_dir(), notice=lambda _text: None)
    ask = re.search(r"^\$ (echo .*) \| \.venv/bin/(spillway predict .*)$", README, re.MULTILINE)
    curl = re.search(r"^\$ (curl -s )localhost:8080(/.*)$", README, re.MULTILINE)
    serve = re.search(r"^\$ \.venv/bin/(spillway serve \S+ --http )127.0.0.1:8080", README, re.MULTILINE)
    assert ask is not None
    assert curl is not None
    assert serve is not None
    said(["spillway", "check", "examples/hello/pipeline.yaml", "--models"], cwd=copied, env=environment)
    output = copied / "serve.out"
    with output.open("wb") as out:
        words = [*serve[1].split(), "127.0.0.1:0"]
        process = subprocess.Popen(words, cwd=copied, env=environment, stdout=out, stderr=out)
    try:
        until(
            lambda: b"ready" in output.read_bytes() or process.poll() is not None,
            READY_SECONDS,
            lambda: f"ready\n{output.read_text()}",
        )
        assert process.poll() is None, output.read_text()
        told = said(["sh", "-c", f"{ask[1]} | {ask[2]} --deadline 300"], cwd=copied, env=environment)
        assert "Hello, Ada!" in told
        log = (copied / ".spillway/run/hello/logs/gateway.0.log").read_text()
        asked = f"{curl[1]}{log.rpartition('http://')[2].split()[0]}{curl[2]}"
        until(lambda: "Hello, Ada!" in said(["sh", "-c", asked]), SECONDS, "an answer within the SLO")
        assert CLIENT_SAYS in said(["python", "-c", CLIENT], cwd=copied, env=environment)
        process.send_signal(signal.SIGINT)
        until(lambda: process.poll() is not None, STOP_SECONDS, "drained and ended")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)


CLIENT = """
import asyncio
from pathlib import Path
from spillway.agents.cli.cluster import find_cluster
from spillway import AsyncClient, Client, Pipeline

pipeline = Pipeline.load("examples/hello/pipeline.yaml").for_slo(300.0)
settings = find_cluster(None, None, run_dir=Path(".spillway/run"), pipeline=pipeline.spec.name)
with Client(pipeline, settings) as client:
    print(client.predict({"name": "Ada"}).outputs["greeting"])

async def main():
    async with AsyncClient(pipeline, settings) as client:
        print((await client.predict({"name": "Grace"})).outputs["greeting"])

asyncio.run(main())
"""
CLIENT_SAYS = "Hello, Ada!\nHello, Grace!\n"


@pytest.mark.parametrize(
    ("line", "commands"), [("import torch", ("check", "serve")), ("from spillway import Learner", ("check",))]
)
def test_a_pipeline_that_needs_torch_says_so_once(copied, environment, broker, unique_name, line, commands):
    (copied / "examples/hello/hello.py").write_text(f"{line}\n")
    pipeline = copied / "examples/hello/pipeline.yaml"
    pipeline.write_text(pipeline.read_text().replace("name: hello", f"name: {unique_name}"))
    text = "stage 'greet': model 'hello:Greet' needs torch: torch is not installed; it comes with an extra: "
    options = {"check": ["--load"], "serve": ["--bootstrap", broker]}
    for command in commands:
        done = subprocess.run(
            ["spillway", command, *options[command], "examples/hello/pipeline.yaml"],
            cwd=copied,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        said_of_it = [each for each in (done.stdout + done.stderr).splitlines() if "needs torch" in each]
        assert done.returncode in (1, 2), done.stdout + done.stderr
        assert len(said_of_it) == 1, done.stdout + done.stderr
        assert f"{text}pip install 'spillway[torch]'" in said_of_it[0]
        assert "Traceback" not in done.stdout + done.stderr
