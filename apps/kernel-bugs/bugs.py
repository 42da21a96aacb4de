#!/usr/bin/env python3
"""bugs.py run|check BUG: the program of a bug of docs/findings.md, and its check of a recovered tree.

The check's working directory is the tree; $WRITEPATH_ACKED has what the program had promised by then.
"""
import fcntl
import mmap
import os
import sys
import threading
import time

import calls as c

# A program and its check are functions of the bug's name: `n16` and `n16_check`. A check answers what
# is wrong. A bug whose mount fails has no check: that the kernel mounts every state is a rule by itself.


def cover():
    """Another file's fsync on F2FS, whose FLUSH covers what came before.

    The node of a file can be in flight at the FLUSH of its own fsync (R1): not what is looked for.
    """
    fd = c.create("other")
    os.fsync(fd)
    os.close(fd)


def n2():
    fd = c.create("a")
    c.write(fd, "A", 0, 2)
    c.sync()
    c.write(fd, "B")
    c.sync()
    c.promise("new")


def n2_check(promised):
    if "new" in promised and c.content("a")[:1] != b"B":
        return "syncfs has returned, and the file is as before"


def n3():
    fd = c.create("a")
    c.write(fd, "A", 0, 2)
    c.sync()
    os.setxattr("a", "user.note", b"N" * 1000)
    c.fsync("a")
    c.promise("note")


def n3_check(promised):
    if "note" in promised and "user.note" not in os.listxattr("a"):
        return "the attribute was synced, and is gone"


def n4():
    fd = c.create("a")
    c.allocate(fd, c.KEEP_SIZE, 0, 1)
    direct = c.create("a", os.O_DIRECT | os.O_DSYNC)
    c.sync()
    c.write(direct, "A")
    cover()
    c.promise("length")


def n4_check(promised):
    if "length" in promised and c.content("a") != b"A" * c.BLOCK:
        return "an O_DSYNC write has returned, and the file does not have it"


def n5():
    fd = c.create("a")
    c.write(fd, "A", 0, 2)
    os.fsync(fd)
    os.close(fd)
    cover()
    c.promise("a")
    c.mount_again()


def n5_check(promised):
    if "a" in promised and c.content("a") != b"A" * 2 * c.BLOCK:
        return "the file was synced, and a power failure during its recovery loses it"


def slow_pages(letter, count):
    """Memory whose pages must each be read from the drive before they can be written elsewhere."""
    fd = c.create("slow")
    c.write(fd, letter, 0, count)
    c.sync()
    c.drop_caches("1")
    pages = mmap.mmap(fd, count * c.BLOCK, mmap.MAP_SHARED, mmap.PROT_READ)
    pages.madvise(mmap.MADV_RANDOM)
    return pages


def direct_beside_sync(pages):
    """A direct write has its place, and waits for what it writes, while the file system is synced."""
    fd = c.create("a", os.O_DIRECT)
    writer = threading.Thread(target=os.pwrite, args=(fd, pages, 0))
    writer.start()
    c.sync()
    writer.join()


def n10():
    pages = slow_pages("N", 256)
    c.write(c.create("a"), "O", 0, 256)
    c.sync()
    c.promise("old")
    direct_beside_sync(pages)


def n10_check(promised):
    if "old" in promised and set(c.content("a")) - set(b"ON"):
        return "the file was synced, and holds neither the old nor the new bytes"


def n11():
    pages = slow_pages("N", 1024)
    fd = c.create("deleted")
    # More than is left of a segment: the new place is in one that the deleted file had.
    c.write(fd, "S", 0, 8192)
    c.sync()
    os.close(fd)
    os.unlink("deleted")
    c.allocate(c.create("a"), 0, 0, 1024)
    c.sync()
    c.promise("zeroes")
    direct_beside_sync(pages)


def n11_check(promised):
    if "zeroes" in promised and set(c.content("a")) - set(b"\0N"):
        return "the file holds bytes of a deleted file"


def n13():
    fd = c.create("a")
    c.sync()
    c.write(fd, "A")
    c.write(c.create("a", os.O_DIRECT | os.O_DSYNC), "B")
    c.promise("new")


def n13_check(promised):
    if "new" in promised and c.content("a") != b"B" * c.BLOCK:
        return "an O_DSYNC write has returned, and the file does not have it"


def n9():
    fd = c.create("a")
    c.write(fd, "A", 1)
    c.allocate(fd, c.ZERO_RANGE, 1, 15)
    c.write(fd, "B", 2)
    os.fdatasync(fd)
    c.promise("zeroes")


def n9_check(promised):
    if "zeroes" in promised and c.content("a")[c.BLOCK : 2 * c.BLOCK] != bytes(c.BLOCK):
        return "the block was zeroed and synced, and has its old bytes"


def n14():
    for n in range(12):
        os.mkdir(f"a{n}")
        c.sync()
        c.promise(f"a{n}")


def n14_check(promised):
    gone = [name for name in promised if not os.path.isdir(name)]
    if gone:
        return f"{gone[0]} was synced, and is gone"


def n15():
    with open("keep", "w"):
        pass
    c.sync()
    fd = c.create("a")
    c.write(fd, "A")
    os.unlink("a")
    os.fsync(fd)
    c.write(fd, "B")
    os.fdatasync(fd)


def n16():
    fd = c.create("a")
    c.write(fd, "A")
    c.sync()
    os.unlink("a")
    c.write(fd, "B")
    os.fsync(fd)
    c.promise("no name")


def n16_check(promised):
    if "no name" in promised and os.path.exists("a"):
        return "the file was synced without a name, and has its name and old bytes again"


def n17():
    os.close(c.create("file"))
    for n in range(35):
        os.link("file", f"{n:0>181}")
    c.sync()
    for n in range(35, 50):
        os.link("file", f"{n:0>181}")
    c.fsync("file")


def n18():
    os.mkdir("A")
    c.sync()
    os.rename("A", "B")
    os.fsync(c.create("B/foo"))
    c.promise("B/foo")


def n18_check(promised):
    if "B/foo" in promised and not os.path.exists("B/foo"):
        return f"B/foo was synced; there is {sorted(os.listdir())}"


def n19():
    os.mkdir("a")
    fd = c.create("a/b")
    c.sync()
    c.write(fd, "A")
    os.fsync(fd)
    os.mkdir("a/c")
    os.link("a/b", "b")
    os.unlink("a/b")
    os.fsync(fd)
    c.promise("b alone")


def n19_check(promised):
    if "b alone" in promised and os.path.exists("a/b"):
        return "a/b was removed before the file's fsync, and is there again"


def n20():
    fd = c.create("a")
    c.allocate(fd, c.KEEP_SIZE, 0, 1)
    os.fsync(fd)
    c.sync()
    c.promise("space")
    os.link("a", "b")
    c.fsync(".")


def n20_check(promised):
    if "space" in promised and os.stat("a").st_blocks < 8:
        return "the space behind the end of the file was synced, and is gone"


def n21():
    os.mkdir("a")
    fd = c.create("a/b")
    c.write(fd, "A")
    c.sync()
    c.promise("data")
    os.link("a/b", "c")
    os.unlink("a/b")
    c.fsync("a")


def n21_check(promised):
    if "data" in promised and not (os.path.exists("a/b") or os.path.exists("c")):
        return "the file was synced, and has neither name"


def n22():
    fd = c.create("a")
    os.fsync(fd)
    c.allocate(fd, c.KEEP_SIZE, 0, 16)
    c.sync()
    c.promise("space")
    c.write(fd, "A")
    os.fdatasync(fd)


def n22_check(promised):
    if "space" in promised and os.stat("a").st_blocks < 128:
        return f"16 blocks were allocated and synced; there are {os.stat('a').st_blocks // 8}"


def n23():
    fd = c.create("a")
    c.sync()
    c.write(fd, "A")
    os.fdatasync(fd)
    os.close(c.create("b"))
    c.drop_caches("2")
    os.rename("a", "c")
    c.fsync("b")
    c.promise("b")


def n23_check(promised):
    if "b" in promised and not os.path.exists("b"):
        return "b was synced, and is not there"


def n24():
    os.symlink("v1", "cur")
    c.sync()
    c.promise("cur")
    os.symlink("v2", "tmp")
    c.fsync(".")
    os.rename("tmp", "cur")
    c.fsync(".")


def n24_check(promised):
    if "cur" in promised and not os.path.islink("cur"):
        return f"no link is called cur; there is {sorted(os.listdir())}"


def n25():
    fd = c.create("a")
    os.mkdir("A")
    os.close(c.create("A/f"))
    c.write(fd, "A")
    c.sync()
    os.ftruncate(fd, 1)
    os.fsync(fd)
    c.promise("cut")
    os.ftruncate(fd, 2)
    os.rename("A/f", "f")
    c.fsync("A")


def n25_check(promised):
    if "cut" in promised and c.content("a")[1:].strip(b"\0"):
        return "the second byte was cut off and that was synced, and it is there again"


def n26():
    def one(n):
        for turn in range(4):
            c.write(fds[n], "ABCD"[turn])
            os.fsync(fds[n])
            c.promise(f"{n} {turn}")

    fds = [c.create(f"f{n}") for n in range(3)]
    c.sync()
    threads = [threading.Thread(target=one, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def n26_check(promised):
    for n, turn in map(str.split, promised):
        found = (c.content(f"f{n}") or b" ")[:1].decode()
        if found < "ABCD"[int(turn)]:
            return f"f{n} was synced with {'ABCD'[int(turn)]}, and has {found}"


def n28():
    fd = c.create("a")
    c.write(fd, "A")
    c.sync()
    os.fchmod(fd, 0o600)
    os.fsync(fd)
    c.promise("mode")


def n28_check(promised):
    if "mode" in promised and os.stat("a").st_mode & 0o777 != 0o600:
        return "the mode was synced, and is the old one"


def n29():
    fd = c.create("a")
    os.setxattr("a", "user.b", b"B" * 1065)
    os.fsync(fd)


def n29_check(_):
    try:
        if os.path.exists("a"):
            os.listxattr("a")
    except OSError as error:
        return f"the attributes of the file cannot be listed: {error}"


def n30():
    fd = c.create("a")
    os.fsync(fd)
    os.setxattr("a", "user.b", b"B" * 1343)
    c.write(fd, "A")
    os.fsync(fd)
    cover()
    c.promise("length")


def n30_check(promised):
    found = c.content("a") or b""
    if "length" in promised and len(found) != c.BLOCK:
        return f"the file was synced with {c.BLOCK} bytes, and has {len(found)}"


def n31():
    c.subvolume("s")
    c.snapshot(".", "t")
    os.rmdir("t/s")
    c.fsync("t")


def beside(*programs):
    """Runs the programs at the same time."""
    threads = [threading.Thread(target=program) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def n39():
    def first():
        c.write(a, "A", 1)
        os.fsync(a)

    def second():
        c.write(b, "N")
        # Takes 2.4 ms: the data go to the drive while the other's last FLUSH is under way.
        for n in range(40):
            cold[n * c.BLOCK]
        os.fsync(b)
        c.promise("new")

    a, b, cold = c.create("a"), c.create("b"), slow_pages("O", 40)
    c.write(a, "O")
    c.write(b, "O")
    c.sync()
    beside(first, second)


def n39_check(promised):
    if "new" in promised and c.content("b") != b"N" * c.BLOCK:
        return "the file was synced with new bytes, and has the old ones"


def n43():
    def commit():
        fcntl.ioctl(a, c.ATOMIC_COMMIT)

    def other():
        # By then the commit has changed block 0, and waits for the node of block 1953.
        time.sleep(250e-6)
        os.fsync(a)

    def change(letter):
        c.write(a, letter)
        c.write(a, letter, 1953)
        c.sync()

    a = c.create("a")
    change("O")
    c.promise("old")
    fcntl.ioctl(a, c.ATOMIC_START)
    change("N")
    c.drop_caches("1")
    beside(commit, other)


def n43_check(promised):
    found = c.content("a") or b""
    if "old" in promised and found[:1] != found[-1:]:
        return f"half of an atomic commit: block 0 has {found[:1]}, block 1953 has {found[-1:]}"


def setting(fs, **options):
    return {"--fs": fs, **{f"--{name}": value for name, value in options.items()}}


# Options of `kernel-lab`. Each mount of NILFS2 takes a second: fewer of its states.
BTRFS = setting("btrfs")
NILFS2 = setting("nilfs2", sample="40")
FAST = setting("ext4", mkfs="-O fast_commit")
ARGUMENTS = {
    "N2": setting("f2fs", mount="fsync_mode=posix"),
    "N3": setting("f2fs", mount="mode=lfs,fsync_mode=strict"),
    "N4": setting("f2fs", mount="fsync_mode=posix"),
    "N5": setting("f2fs", mount="fsync_mode=posix"),
    "N9": setting("ext4", mount="data=journal"),
    "N10": setting("f2fs", mount="mode=lfs"),
    "N11": setting("f2fs", mount="mode=adaptive,alloc_mode=reuse,nodiscard"),
    "N13": setting("f2fs", mount="fsync_mode=posix"),
    "N14": setting("nilfs2", mkfs="-B 16"),
    "N15": NILFS2,
    **{f"N{n}": BTRFS for n in range(16, 26)},
    # A drive whose write is still under way when the fsync looks.
    "N22": setting("btrfs", device="emmc-16,capacity_bytes=536870912"),
    "N26": NILFS2,
    "N28": NILFS2,
    "N29": setting("f2fs"),
    "N30": setting("f2fs", mount="fsync_mode=strict"),
    "N31": BTRFS,
    # A drive that does other work beside a FLUSH.
    "N39": {**FAST, "--device": "990pro-2tb,capacity_bytes=536870912,flush_overhead_ns=1000000"},
    "N43": setting("f2fs"),
}


def main(what, bug):
    program = globals()[bug.lower()]
    if what == "run":
        return program()
    check = globals().get(f"{bug.lower()}_check")
    if check is None:
        return None
    with open(os.environ["WRITEPATH_ACKED"]) as acked:
        return check(acked.read().splitlines())


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("run", "check") or sys.argv[2] not in ARGUMENTS:
        sys.exit(f"{__doc__}\nbugs: {' '.join(ARGUMENTS)}")
    sys.exit(main(*sys.argv[1:]))
