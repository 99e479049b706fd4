"""Harbor environments that need no Docker: `local` (untrusted tasks, confined) and `host` (trusted tasks only).

How a `local` sandbox is made, from the outside in:

* `rootless`: an ordinary user's driver first becomes root of a user namespace of its own;
* `images`: what a task's Dockerfile (`dockerfile`, `dockerfile_plan`) or image asks for, or why it cannot be had;
* `overlay`: a writable layer over cached Dockerfile layers (`layers`, `layer_store`) over an own Debian system
  (`rootfs`, `rootfs_archive`), mounted in a mount namespace that only the driver's mount thread is in;
* `confine`: bubblewrap as an id that is nobody on the host; own user, pid, mount, network, IPC and UTS namespaces,
  nine harmless capabilities, read-only /proc/sys and /dev; `syscall_filter`, `limits` (per process) and
  `control_groups` (of all processes together, where the driver may make some) on top;
* `pid1`: the first process inside forks every command, so a command inherits all of this and costs the driver one
  message (`channel`);
* `transfer`: files move through a descriptor of the root directory, by kernel-checked paths;
* `records`, `reaper`: what a killed driver leaves is found and removed.

What is trusted: the kernel, bubblewrap, the root file system as built. What is not: everything that runs inside, as
root of the sandbox, including whatever it may write to any socket, pipe or file that the driver reads.

Not defended against: exhaustion of the machine by many sandboxes that each use all that their limits allow.
"""
