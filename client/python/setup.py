"""Only so that a wheel or an install generates the protobuf modules first; everything else is in pyproject.toml."""

import pathlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


class BuildPy(build_py):
    def run(self):
        import generate_protos

        if generate_protos.SOURCE.is_dir() and generate_protos.stale():
            generate_protos.generate()
        super().run()


setup(cmdclass={"build_py": BuildPy})
