# SPDX-License-Identifier: Apache-2.0
"""A run that answers as it is told, for what no honest program says (docs/protocol.md)."""

import contextlib
import fcntl
import json
import os
import socket
import threading


class End(bytes):
    """The last that is sent on a connection."""


class FakeRun:
    """`answers`: method -> result, or a function of the params that gives one; an Exception is an
    error answer; bytes are sent as they are, an End of bytes too, and then the connection ends, as
    with None."""

    def __init__(self, runtime, run_id, answers=None, info=None):
        self.dir = runtime / run_id
        runtime.mkdir(mode=0o700, exist_ok=True)
        self.dir.mkdir(mode=0o700)
        run = {"id": run_id, "name": run_id, "pid": os.getpid(), "start_time": 1796045719.5}
        run.update(info or {})
        (self.dir / "run.json").write_text(json.dumps(run))
        self._lock = (self.dir / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.answers = {"hello": {"protocol": 1, "version": "0.1.0", "run": run}}
        self.answers.update(answers or {})
        self.requests = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.dir / "sock"))
        self._listener.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with (
            contextlib.suppress(ConnectionError),  # the command has seen enough
            connection,
            connection.makefile("r") as lines,
        ):
            for line in lines:
                request = json.loads(line)
                self.requests.append(request)
                answer = self.answers.get(request["method"], {})
                if callable(answer):
                    answer = answer(request.get("params"))
                if answer is None:
                    return
                if not isinstance(answer, bytes):
                    answer = self._envelope(request["id"], answer)
                connection.sendall(answer)
                if isinstance(answer, End):
                    return

    @staticmethod
    def _envelope(request_id, answer):
        message = {"jsonrpc": "2.0", "id": request_id}
        if isinstance(answer, Exception):
            message["error"] = {"code": answer.args[0], "message": answer.args[1]}
        else:
            message["result"] = answer
        return json.dumps(message).encode() + b"\n"

    def close(self):
        # shutdown wakes the thread in accept(2), close alone does not
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._lock.close()


def event(**fields):
    return json.dumps({"jsonrpc": "2.0", "method": "event", "params": fields}).encode() + b"\n"
