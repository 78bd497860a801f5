# SPDX-License-Identifier: Apache-2.0
"""A real sshd on loopback with keys of its own, as whoever runs the tests."""

import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import threading

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")

SERVER = """\
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
"""

CLIENT = """\
Host far 127.0.0.1
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
"""


def make_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


class Sshd:
    """We listen, so that the port is free for certain; each connection is served by one sshd -i.
    `ssh` is the command that reaches it by the name `far`."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("host_key", "user_key"):
            make_key(folder / name)
        if os.geteuid() == 0:  # what the machine makes when it starts
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        key = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")
        self._server_config = folder / "sshd_config"
        self._server_config.write_text(SERVER.format(folder=folder))
        config = folder / "ssh_config"
        config.write_text(CLIENT.format(folder=folder, port=self.port, user=getpass.getuser()))
        self.ssh = f"ssh -F {config}"
        self._servers = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, (self.folder / "log").open("a") as log:
                command = [SSHD, "-i", "-e", "-f", self._server_config]
                self._servers.append(
                    subprocess.Popen(command, stdin=connection, stdout=connection, stderr=log)
                )

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for server in self._servers:
            server.terminate()
            server.wait()
