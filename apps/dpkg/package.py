"""The package of the two programs here."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import app

FILES = 8
DIR = "usr/share/app"


def contents(n):
    """The files of version n, by name."""
    files = {f"file{i}": f"file {i} of version {n}\n" * (1 + 200 * (i % 3)) for i in range(FILES)}
    files[f"new{n}"] = f"new in version {n}\n" * 50
    return files


def path(scratch, n):
    return os.path.join(scratch, f"app_{n}.deb")


def build(scratch, n):
    """Makes the package of version n."""
    top = os.path.join(scratch, f"version{n}")
    for name, text in {f"{DIR}/{name}": text for name, text in contents(n).items()}.items():
        os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
        with open(os.path.join(top, name), "w") as file:
            file.write(text)
    os.makedirs(os.path.join(top, "DEBIAN"))
    with open(os.path.join(top, "DEBIAN", "control"), "w") as file:
        file.write(
            f"Package: app\nVersion: {n}\nArchitecture: all\nMaintainer: a <a@b>\nDescription: app\n"
        )
    argv = ["dpkg-deb", "--build", "--root-owner-group", "-Znone", top, path(scratch, n)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def dpkg(root, *args):
    """The command line of dpkg on a directory."""
    return ["dpkg", f"--root={os.path.abspath(root)}", f"--log={os.devnull}", "--force-not-root", *args]
