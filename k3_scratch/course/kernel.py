"""Run a notebook in a fresh kernel of the Python that runs this, whatever kernels the machine knows."""

import os
import sys
import tempfile

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

SECONDS = 900                # for one cell


class RunError(ValueError):
    """A cell raised; the message names the notebook, the cell and the error."""


class _ThisPython(KernelSpecManager):
    """Every name means: ipykernel under sys.executable."""

    def get_kernel_spec(self, kernel_name):
        return KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}",
                                "--IPKernelApp.log_level=40"],
                          display_name="Python 3", language="python")


def execute(notebook, folder, *, figures=None, strict=False, progress=None, shorter=1):
    """Run all cells in `folder` and keep their outputs, without times.                          -> the same notebook

    figures   folder in which `show` saves named pictures; None: nowhere
    strict    checks raise
    progress  the file of `progress()`; None: nothing is kept
    shorter   notebooks that train make a part of their updates only, see steps.py
    Raises RunError when a cell raises.
    """
    with tempfile.TemporaryDirectory(prefix="k3-ipython-") as settings:
        environment = {**os.environ, "IPYTHONDIR": settings, "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                       "K3_STRICT": "1" if strict else "", "K3_PROGRESS": str(progress or ""),
                       "K3_FIGURES": str(figures or ""), "K3_STEPS": str(shorter), "K3_HUNTS": ""}
        manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=_ThisPython())
        client = NotebookClient(notebook, km=manager, timeout=SECONDS, record_timing=False, coalesce_streams=True)
        try:
            client.execute(cwd=str(folder), env=environment)
        except CellExecutionError as error:
            raise RunError(f"{notebook.metadata.get('k3', {}).get('name', 'notebook')}: {_told(notebook, error)}") \
                from None
    notebook.metadata["language_info"] = {"name": "python"}         # without the version: the same on every machine
    return notebook


def _told(notebook, error):
    broken = [cell for cell in notebook.cells if any(o.output_type == "error" for o in cell.get("outputs", ()))]
    source = broken[0].source if broken else ""
    return f"{error.ename}: {error.evalue}\nin the cell\n" + "\n".join("    " + line for line in source.split("\n"))
