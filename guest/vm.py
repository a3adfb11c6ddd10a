#!/usr/bin/env python3
"""A small Linux guest for the notifier: builds it from Debian packages, boots it under a limit, brings back what both sides counted.

  guest/vm.py build                    makes the guest (kernel, initramfs with busybox, the module and the workload)
  guest/vm.py run [OPTIONS]            boots it once under `outpage run`, and prints one JSON object
  guest/vm.py compare [OPTIONS]        boots it three times: a guest that does not page, one that does, one that is notified
  guest/vm.py missing                  names what is not installed; exit code 0 when nothing is

Everything that is made lies in --dir (default: target/guest of the repository). Exit codes: 0 the guest ran and its contents were verified; 1 it
did not; 69 something is not installed. SPDX-License-Identifier: MIT OR Apache-2.0
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import meddle

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# The order in which they are loaded.
MODULES = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"]
QEMU = "qemu-system-x86_64"
# What the kernel says of every module that is not its own, and what this one says.
EXPECTED = "out-of-tree module taints|module verification failed|outpage: the host tells"
INSTALL = "apt-get install --no-install-recommends"

# How QEMU runs the guest. TCG is told to keep 64 MiB of translated code, for by itself it takes much of a small limit.
ACCELERATORS = {"tcg": ["-accel", "tcg,tb-size=64", "-cpu", "max"], "kvm": ["-accel", "kvm", "-cpu", "host"]}


def fail(code, text):
    print(f"vm.py: {text}", file=sys.stderr)
    sys.exit(code)


def headers():
    """The newest Debian kernel that modules can be built for."""
    built = [os.path.dirname(path) for path in glob.glob("/lib/modules/6.1.*-amd64/build")]
    return os.path.basename(max(built, key=os.path.getmtime)) if built else None


def missing():
    """Packages that have to be installed."""
    need = {"qemu-system-x86": shutil.which(QEMU), "cpio": shutil.which("cpio"), "gcc": shutil.which("gcc"), "make": shutil.which("make"),
            "busybox-static": os.path.exists("/usr/share/doc/busybox-static") and shutil.which("busybox"),
            "linux-headers-amd64": headers()}
    return [package for package, there in need.items() if not there]


def need_all():
    packages = missing()
    if packages:
        fail(69, f"not installed: {INSTALL} {' '.join(packages)}")


def run(words, code=1, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        fail(code, f"{' '.join(words)}: {done.stdout.strip()[-600:]}")
    return done.stdout


def kernel(directory, version):
    """The directory that holds boot/ and lib/ of the kernel's package, which is unpacked and not installed."""
    if os.path.exists(f"/boot/vmlinuz-{version}") and os.path.isdir(f"/lib/modules/{version}/kernel"):
        return "/"
    into = os.path.join(directory, "kernel")
    if not os.path.exists(f"{into}/boot/vmlinuz-{version}"):
        shutil.rmtree(into, ignore_errors=True)
        os.makedirs(into)
        # Beside the directory of the repository: apt's own user may have no access there.
        with tempfile.TemporaryDirectory() as place:
            run(["apt-get", "download", f"linux-image-{version}"], code=69, cwd=place)
            for package in glob.glob(f"{place}/*.deb"):
                run(["dpkg-deb", "-x", package, into])
    return into


def build(directory):
    """Makes vmlinuz and initramfs in `directory`."""
    need_all()
    os.makedirs(directory, exist_ok=True)
    version = headers()
    unpacked = kernel(directory, version)
    module = os.path.join(directory, "module")
    os.makedirs(module, exist_ok=True)
    for name in ["Kbuild", "outpage_guest.c", "outpage_notify.h"]:
        shutil.copy(os.path.join(HERE, name), module)
    run(["make", "-C", f"/lib/modules/{version}/build", f"M={module}", "modules"])
    tree = os.path.join(directory, "tree")
    shutil.rmtree(tree, ignore_errors=True)
    for name in ["bin", "modules", "proc", "sys", "dev", "tmp"]:
        os.makedirs(os.path.join(tree, name))
    shutil.copy(shutil.which("busybox"), f"{tree}/bin/busybox")
    for applet in ["sh", "mount", "insmod", "rmmod", "mkswap", "swapon", "cat", "grep", "sed", "tr", "dmesg", "sync", "poweroff", "sleep"]:
        os.symlink("busybox", f"{tree}/bin/{applet}")
    run(["gcc", "-O2", "-static", "-Wall", "-o", f"{tree}/bin/workload", os.path.join(HERE, "workload.c")])
    for name in MODULES:
        found = glob.glob(f"{unpacked}/lib/modules/{version}/kernel/drivers/*/{name}.ko")
        if not found:
            fail(1, f"the kernel's package has no {name}.ko")
        shutil.copy(found[0], f"{tree}/modules/")
    shutil.copy(f"{module}/outpage_guest.ko", f"{tree}/modules/")
    shutil.copy(os.path.join(HERE, "init"), f"{tree}/init")
    os.chmod(f"{tree}/init", 0o755)
    archive = os.path.join(directory, "initramfs")
    with open(archive, "wb") as out:
        names = subprocess.run(["find", "."], cwd=tree, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=tree, input=names, stdout=out, check=True)
    shutil.copy(f"{unpacked}/boot/vmlinuz-{version}", os.path.join(directory, "vmlinuz"))
    with open(os.path.join(directory, "version"), "w", encoding="ascii") as out:
        out.write(version)
    return version


def is_built(directory):
    sources = [os.path.join(HERE, name) for name in ["outpage_guest.c", "outpage_notify.h", "workload.c", "init", "Kbuild"]]
    archive = os.path.join(directory, "initramfs")
    return os.path.exists(archive) and os.path.getmtime(archive) > max(map(os.path.getmtime, sources))


def command(options, directory, work):
    """The command line of QEMU."""
    append = ["console=ttyS0", "quiet", "loglevel=4", "panic=-1", "transparent_hugepage=never", "nokaslr", "rdinit=/init",
              f"notify={options.notify}", f"swap={int(options.guest_swap > 0)}", f"cap={options.cap}", f"interval={options.interval}",
              f"workload={options.workload}", f"after={options.after}", f"rest={options.rest}"]
    words = [QEMU, "-machine", options.machine, *ACCELERATORS[options.accel], "-m", f"{options.ram}M", "-smp", "1", "-nodefaults",
             "-no-reboot", "-display", "none", "-serial", f"file:{work}/serial", "-kernel", f"{directory}/vmlinuz",
             "-initrd", f"{directory}/initramfs", "-append", " ".join(append)]
    if options.guest_swap > 0:
        swap = os.path.join(work, "swap")
        with open(swap, "wb") as file:
            file.truncate(options.guest_swap << 20)
        words += ["-drive", f"file={swap},format=raw,if=virtio,aio=threads"]
    return words


def outpage():
    """The program, as it was built last, or as OUTPAGE says."""
    given = os.environ.get("OUTPAGE")
    if given:
        return given
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    built = [path for path in (f"{target}/{kind}/outpage" for kind in ["release", "debug"]) if os.path.exists(path)]
    if not built:
        fail(69, "no outpage: cargo build -p outpage -p outpage-preload, or say where it is in OUTPAGE")
    return max(built, key=os.path.getmtime)


def counters(text):
    """GUEST WHEN.NAME VALUE of the serial line, by name; lines of the kernel's; whether every workload verified its contents."""
    found = {}
    for when, name, value in re.findall(r"^GUEST (\w+)\.(\w+) +(\d+)", text, re.M):
        found.setdefault(when, {})[name] = int(value)
    complaints = [line for line in re.findall(r"^GUEST kernel: (.*)$", text, re.M) if not re.search(EXPECTED, line)]
    starts, verified = text.count("GUEST starts"), text.count("VERIFIED")
    return found, complaints, {"workloads": starts, "verified": verified, "done": "GUEST done" in text, "wrong": "WRONG" in text}


def said_by(work):
    """The guest's serial line so far."""
    if not os.path.exists(f"{work}/serial"):
        return ""
    with open(f"{work}/serial", encoding="utf-8", errors="replace") as file:
        return file.read()


def boot(options, directory):
    """Boots the guest once; what both sides counted."""
    work = tempfile.mkdtemp(prefix="run-", dir=directory)
    shm = tempfile.mkdtemp(prefix="outpage-", dir="/dev/shm")
    words = command(options, directory, work)
    area, stats = os.path.join(shm, "area"), os.path.join(work, "stats")
    limit, meddler = [], None
    if options.memory:
        limit = [outpage(), "run", "--memory", f"{options.memory}M", "--swap", options.swap, "--stats", stats, "-q"]
        limit += ["--notify", area] if options.notify != "off" else []
        limit += options.outpage + ["--"]
    if options.notify != "off":
        size = options.area or 1
        if not options.memory:
            meddle.make(area, options.ram, size)
        words += ["-object", f"memory-backend-file,id=area,share=on,mem-path={area},size={size}M", "-device", "ivshmem-plain,memdev=area"]
    began = time.monotonic()
    hung, code = False, None
    qemu = subprocess.Popen(["timeout", "-k", "5", str(options.timeout), *limit, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if options.meddle:
        # Once the guest has taken the area.
        while qemu.poll() is None and "GUEST starts" not in said_by(work):
            time.sleep(0.1)
        meddler = meddle.Meddler(area, options.meddle)
        meddler.start()
    try:
        said, _ = qemu.communicate()
        code = qemu.returncode
        hung = code in (124, 137)
    finally:
        took = time.monotonic() - began
        if meddler:
            meddler.stop()
        shutil.rmtree(shm, ignore_errors=True)
    text = said_by(work)
    guest, complaints, outcome = counters(text)
    host = {}
    if os.path.exists(stats):
        with open(stats, encoding="utf-8") as file:
            host = json.load(file)
    if options.keep:
        print(text, file=sys.stderr)
    shutil.rmtree(work, ignore_errors=True)
    names = ["page_ins", "page_outs", "page_in_reads", "page_out_writes", "major_faults", "minor_faults", "notified_out", "notified_in",
             "notified_lost", "fault_ns"]
    flat = host.get("counters", host)
    return {"ram_mib": options.ram, "memory_mib": options.memory, "guest_swap_mib": options.guest_swap, "notify": options.notify,
            "workload": options.workload, "seconds": round(took, 2), "exit": code, "hung": hung, "said": said.strip()[-400:], "outcome": outcome,
            "meddled": meddler.times if meddler else 0, "complaints": complaints, "guest": guest, "host": {name: flat.get(name) for name in names if name in flat}}


def is_sound(result):
    outcome = result["outcome"]
    return result["exit"] == 0 and outcome["done"] and not outcome["wrong"] and outcome["workloads"] == outcome["verified"]


def of_guest(result, name):
    after, before = (result["guest"].get(when, {}).get(name, 0) for when in ["after", "before"])
    return after - before


def table(results):
    """What the runs came to, in pages."""
    rows = [("seconds", lambda r: r["seconds"]), ("guest swap in", lambda r: of_guest(r, "pswpin")), ("guest swap out", lambda r: of_guest(r, "pswpout")),
            ("host page-ins", lambda r: r["host"].get("page_ins", 0)), ("host page-outs", lambda r: r["host"].get("page_outs", 0)),
            ("double paging", lambda r: of_guest(r, "double_paged")), ("told out", lambda r: r["host"].get("notified_out", 0)),
            ("hidden at the end", lambda r: r["guest"].get("after", {}).get("hidden", 0)), ("verified", is_sound)]
    lines = ["| | " + " | ".join(name for name, _ in results) + " |", "|---" * (len(results) + 1) + "|"]
    for what, value in rows:
        lines.append(f"| {what} | " + " | ".join(str(value(result)) for _, result in results) + " |")
    return "\n".join(lines)


def compare(options, directory):
    """The paper's three runs: RAM enough for the workload and no guest swap; less RAM, and guest swap; the same, notified."""
    kinds = {"KVM-large": (options.large, 0, "0"), "KVM": (options.ram, options.guest_swap, "0"), "HSN": (options.ram, options.guest_swap, "1")}
    results = []
    for number in range(options.runs):
        for name, (ram, swap, notify) in kinds.items():
            options.ram, options.guest_swap, options.notify = ram, swap, notify
            result = boot(options, directory)
            result["name"], result["run"], result["sound"] = name, number, is_sound(result)
            results.append((name, result))
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump([result for _, result in results], file, indent=1)
            print(f"{name}: {result['seconds']} s, sound: {is_sound(result)}", file=sys.stderr)
    return results


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog="options for outpage run stand at the end, behind --",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run", "compare", "missing"])
    add = parser.add_argument
    add("--dir", default=os.path.join(ROOT, "target", "guest"), help="where everything is made")
    add("--ram", type=int, default=192, help="RAM of the guest in MiB")
    add("--memory", type=int, default=128, help="limit of QEMU in MiB; 0: none")
    add("--guest-swap", type=int, default=512, help="swap space of the guest in MiB; 0: none")
    add("--large", type=int, default=384, help="compare: RAM in MiB of the guest that does not page")
    add("--swap", default="/var/tmp", help="directory of Outpage's swap file")
    add("--notify", default="1", choices=["0", "1", "off"], help="1: the guest hides; 0: it counts only; off: no device, no module")
    add("--workload", default="pass,224,3", help="words of guest/workload.c with commas; several, apart by +, run at once")
    add("--after", default="none", choices=["none", "unload"], help="what the guest does at the end")
    add("--cap", type=int, default=90, help="most that is hidden, in percent of the guest's RAM")
    add("--interval", type=int, default=10, help="milliseconds between two drains")
    add("--rest", type=int, default=5000, help="milliseconds without hiding after memory ran out")
    add("--area", type=int, default=0, help="MiB of the shared area, as many as Outpage makes it (default 1: guests up to 14 GiB)")
    add("--meddle", choices=["all-out", "garbage", "scribble"], help="somebody writes to the shared area (guest/meddle.py)")
    add("--machine", default="pc", help="pc or q35")
    add("--accel", default="tcg", choices=list(ACCELERATORS), help="how QEMU runs the guest: kvm where the machine can")
    add("--runs", type=int, default=1, help="compare: runs of each kind")
    add("--timeout", type=int, default=540, help="seconds that a run may take")
    add("--json", help="compare: file for all results")
    add("--keep", action="store_true", help="print what the guest said")
    # By hand: argparse takes what is behind the first word's options for none of its own.
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.outpage = words[end + 1:]
    return options


def main():
    options = arguments()
    directory = os.path.abspath(options.dir)
    if options.what == "missing":
        packages = missing()
        print(f"{INSTALL} {' '.join(packages)}" if packages else "nothing")
        sys.exit(69 if packages else 0)
    need_all()
    if options.what == "build" or not is_built(directory):
        print(f"built the guest for Linux {build(directory)} in {directory}", file=sys.stderr)
    if options.what == "run":
        result = boot(options, directory)
        print(json.dumps(result, indent=1))
        sys.exit(0 if is_sound(result) else 1)
    if options.what == "compare":
        results = compare(options, directory)
        print(table(results))
        sys.exit(0 if all(is_sound(result) for _, result in results) else 1)


if __name__ == "__main__":
    main()
