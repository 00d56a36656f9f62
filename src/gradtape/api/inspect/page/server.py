"""The inspector's page, live on this machine: it changes when the function or the script has run again."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from gradtape.api.inspect.page.document import write_page

HOST: Final = "127.0.0.1"

PATIENCE: Final = 20.0
"""Seconds after which a request for news is answered though there are none."""


class PageServer:
    """Serves a page to browsers on this machine that know the token.

    Attributes
    ----------
    url : str
        With the token.
    has_ended : bool
        Whether it is closed.

    Parameters
    ----------
    model : dict
        What the page shows at first.
    again : callable, optional
        Runs the function or the script again; the page has a button for it then.
    """

    def __init__(self, model: dict[str, Any], again: Callable[[], None] | None = None) -> None:
        self._token = secrets.token_urlsafe(24)
        self._model = model
        self._again = again
        self._version = 1
        self._state = "live"
        self._news = threading.Event()
        self.has_ended = False
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://{HOST}:{self.port}/?token={self._token}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="gradtape-inspect", daemon=True
        )
        self._thread.start()

    def publish(self, model: dict[str, Any]) -> None:
        """Show another model in all browsers."""
        self._model = model
        self.say("live")

    def say(self, state: str) -> None:
        """Show how things are."""
        self._state = state
        self._version += 1
        self._tell()

    def close(self) -> None:
        """Stop serving."""
        self.has_ended = True
        self._tell()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _tell(self) -> None:
        """Answer those who wait for news."""
        told, self._news = self._news, threading.Event()
        told.set()

    # Asked by the handler

    def admits(self, host: str, token: str) -> bool:
        """Return whether a request comes from the page: it has the token, and no other host's name stands for this machine."""
        names = (f"{HOST}:{self.port}", f"localhost:{self.port}")
        return host in names and hmac.compare_digest(token.encode(), self._token.encode())

    def page(self) -> str:
        """Return the page."""
        live = {"token": self._token, "version": self._version, "again": self._again is not None}
        return write_page({**self._model, "live": live})

    def news(self, seen: int) -> dict[str, Any] | None:
        """Return the model when there is another than the one of number `seen`; None if there is none for long."""
        waiting = self._news  # before the version is looked at: what changes after that sets it
        if self._version == seen and not self.has_ended:
            waiting.wait(PATIENCE)
        if self._version == seen or self.has_ended:
            return None
        return {"version": self._version, "model": self._model, "state": self._state}

    def run_again(self) -> bool:
        """Run the shown program again; return whether that is possible."""
        if self._again is None:
            return False
        threading.Thread(target=self._again, name="gradtape-inspect-run", daemon=True).start()
        return True


def _handler(server: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers requests for the page and for news."""

        protocol_version = "HTTP/1.1"
        server_version = "gradtape"
        sys_version = ""

        def do_GET(self) -> None:
            path, query = self._asked()
            if path is None:
                return
            if path == "/":
                self._answer(HTTPStatus.OK, "text/html; charset=utf-8", server.page().encode())
            elif path == "/model":
                seen = query.get("seen", ["0"])[0]
                news = server.news(int(seen) if seen.isdecimal() else 0)
                if server.has_ended:
                    self.close_connection = True
                    self._refuse(HTTPStatus.GONE)
                elif news is None:
                    self._answer(HTTPStatus.NO_CONTENT, "", b"")
                else:
                    self._answer(HTTPStatus.OK, "application/json", json.dumps(news).encode())
            else:
                self._refuse(HTTPStatus.NOT_FOUND)

        def do_POST(self) -> None:
            path, _ = self._asked()
            if path is not None:
                is_done = path == "/run" and server.run_again()
                self._answer(HTTPStatus.NO_CONTENT, "", b"") if is_done else self._refuse(
                    HTTPStatus.NOT_FOUND
                )

        def _asked(self) -> tuple[str | None, dict[str, list[str]]]:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            if not server.admits(self.headers.get("Host", ""), query.get("token", [""])[0]):
                self._refuse(HTTPStatus.FORBIDDEN)
                return None, {}
            return parts.path, query

        def _refuse(self, status: HTTPStatus) -> None:
            self._answer(status, "text/plain", f"{status.value} {status.phrase}\n".encode())

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            if kind:
                self.send_header("Content-Type", kind)
            if status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(len(body)))
            for name, content in (
                ("Cache-Control", "no-store"),
                ("Referrer-Policy", "no-referrer"),
                ("X-Content-Type-Options", "nosniff"),
                ("X-Frame-Options", "DENY"),
            ):
                self.send_header(name, content)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: the terminal is the script's."""

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the browser's window was closed
                self.close_connection = True

    return Handler
