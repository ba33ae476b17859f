# SPDX-License-Identifier: Apache-2.0
"""Checks that no other user can have written a library."""

import os
import pathlib
import stat


class UntrustedError(OSError):
    """Another user owns or can write a file or folder of the library; the message names it."""


def check(path: pathlib.Path) -> None:
    """Checks a file or folder, which need not exist yet, and every folder that it is in.

    Only this user or root may own and write them. A folder in between may be
    open to all if it is sticky, as /tmp is: no user can replace what others put there.

    Raises:
        UntrustedError: if this does not hold.
    """
    if not hasattr(os, "geteuid"):
        return  # not a system that kernels were ever compiled on
    real = pathlib.Path(os.path.realpath(path))
    complaint = _complaint(real, may_be_sticky=False)
    complaint = complaint or _complaint(real.parent, may_be_sticky=not real.is_file())
    for folder in real.parent.parents:
        complaint = complaint or _complaint(folder, may_be_sticky=True)
    if complaint:
        raise UntrustedError(f"compiled code in {path} is not trusted, as {complaint}")


def _complaint(path: pathlib.Path, may_be_sticky: bool) -> str:
    try:
        status = path.stat()
    except FileNotFoundError:
        return ""
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to {_user(status.st_uid)}, neither to this user nor to root"
    if may_be_sticky and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH or (
            status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid)):
        return f"others can write {path}. Run `chmod go-w` on it"
    return ""


def _is_private(group: int, user: int) -> bool:
    """Whether a group has only one member, the user: many systems give each user such a group."""
    import grp
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return group == 0 or (found.gr_name == _user(user) and set(found.gr_mem) <= {found.gr_name})


def _user(number: int) -> str:
    import pwd
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
