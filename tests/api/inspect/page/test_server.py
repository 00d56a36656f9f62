"""The live page: on this machine only, with a token, changing when there is another model."""

from __future__ import annotations

import json
import socket
import threading
from http.client import HTTPConnection
from urllib.parse import parse_qs, urlsplit

import pytest

from gradtape.api.inspect.page.server import HOST, PageServer

MODEL = {
    "title": "one", "made": "", "machine": "", "failure": "", "files": [], "functions": [], "programs": [], "events": [], "problems": [],
}  # fmt: skip


def asked(server, path, method="GET", host=None):
    connection = HTTPConnection(HOST, server.port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"{HOST}:{server.port}"})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


@pytest.fixture
def server():
    ran = threading.Event()
    made = PageServer(MODEL, ran.set)
    made.ran = ran
    yield made
    made.close()


def test_the_token_and_the_host_are_checked(server):
    token = parse_qs(urlsplit(server.url).query)["token"][0]
    assert len(token) >= 32
    assert asked(server, f"/?token={token}")[0] == 200
    for path in ("/", "/?token=", f"/?token={token[:-1]}", "/?token=ü", "/model?token=wrong&seen=0"):
        assert asked(
            server, path.encode("latin1").decode("latin1") if path.isascii() else "/?token=%C3%BC"
        ) == (403, "403 Forbidden\n")
    assert asked(server, "/run?token=wrong", "POST")[0] == 403 and not server.ran.is_set()
    assert asked(server, f"/?token={token}", host=f"evil.example:{server.port}")[0] == 403
    assert asked(server, f"/nothing?token={token}")[0] == 404
    assert asked(server, f"/run?token={token}")[0] == 404  # links do not run anything


def test_it_listens_to_this_machine_only(server):
    assert server._server.server_address[0] == "127.0.0.1"
    own = socket.gethostbyname(socket.gethostname())
    if own != HOST:
        with pytest.raises(OSError), socket.create_connection((own, server.port), timeout=2):
            pass


def test_news_come_when_there_is_another_model(server):
    token = parse_qs(urlsplit(server.url).query)["token"][0]
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(asked(server, f"/model?token={token}&seen=1")))
    waiting.start()
    server.publish({**MODEL, "title": "two"})
    waiting.join(10)
    ((status, body),) = answers
    assert status == 200 and json.loads(body)["model"]["title"] == "two" and json.loads(body)["version"] == 2
    assert asked(server, f"/run?token={token}", "POST")[0] == 204 and server.ran.wait(10)
    assert "two" in asked(server, f"/?token={token}")[1]
