"""NVML as benches/gpu/run reads it: the facts that the pool relies on, compared with the assumptions of the tests' fake NVML."""

import ctypes
import os
import time

SETTLE_SECONDS_MAX = 10.0
PROCESSES_MAX = 256
NOT_AVAILABLE = (1 << 64) - 1
LIBRARY = "MODEL_POOL_NVML_LIBRARY"


class MemoryInfo(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class ProcessInfo(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """A GPU."""

    def __init__(self, index):
        self.library = ctypes.CDLL(os.environ.get(LIBRARY) or "libnvidia-ml.so.1")
        self.call("nvmlInit_v2")
        self.device = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(self.device))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise OSError(f"{name} answers {status}")

    def text(self, name, *before):
        room = ctypes.create_string_buffer(96)
        self.call(name, *before, room, ctypes.c_uint(len(room)))
        return room.value.decode()

    def product(self):
        return self.text("nvmlDeviceGetName", self.device)

    def driver(self):
        return self.text("nvmlSystemGetDriverVersion")

    def memory(self):
        info = MemoryInfo(version=ctypes.sizeof(MemoryInfo) | 2 << 24)
        self.call("nvmlDeviceGetMemoryInfo_v2", self.device, ctypes.byref(info))
        return info

    def processes(self):
        """Returns process ids with their bytes; `None` where the driver does not report them."""
        room = (ProcessInfo * PROCESSES_MAX)()
        count = ctypes.c_uint(PROCESSES_MAX)
        self.call("nvmlDeviceGetComputeRunningProcesses_v3", self.device, ctypes.byref(count), room)
        return {one.pid: None if one.bytes == NOT_AVAILABLE else one.bytes for one in room[: count.value]}

    def settled_after(self, bytes_before):
        """Returns the seconds until used memory is back at this amount, within 16 MiB; `None` after ten seconds."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < SETTLE_SECONDS_MAX:
            if self.memory().used <= bytes_before + (16 << 20):
                return passed
            time.sleep(0.01)
        return None


def gib(count):
    return f"{count / (1 << 30):.2f} GiB"


def rows_before(nvml):
    memory = nvml.memory()
    return [
        ("GPU", nvml.product(), "any"),
        ("driver", nvml.driver(), "any"),
        ("memory", f"{gib(memory.total)}, of which the driver keeps {gib(memory.reserved)}", "both are reported"),
        (
            "used + free + reserved − total",
            gib(memory.used + memory.free + memory.reserved - memory.total),
            "0: `used` is without `reserved`",
        ),
    ]


def rows_with_engine(nvml, pid, bytes_before):
    """Checks the facts while one of the pool's engines holds memory."""
    listed = nvml.processes()
    grown = nvml.memory().used - bytes_before
    if pid not in listed:
        seen = f"no; the list has {len(listed)} processes"
    elif listed[pid] is None:
        seen = "listed, without its bytes"
    else:
        seen = f"{gib(listed[pid])}, and used memory has grown by {gib(grown)}"
    where = "a container" if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv") else "no known container"
    return [
        (f"the engine's own process on NVML's list (in {where})", seen, "its id and bytes; the pool subtracts where there are none"),
        ("used memory by the engine", gib(grown), "what its process holds"),
    ]
