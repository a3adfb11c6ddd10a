//! Fork: every way in which a process comes to be with a copy of this one's memory.
//!
//! `vfork`, `posix_spawn` and threads share the memory and the pager with it; they need nothing.
//!
//! A managed parent's pager finishes its I/O, maps the pages around the forking thread's stack
//! pointer and thread block, and rests while the kernel copies. The child has one thread, this
//! one, and no pager: before it touches anything else it starts its own. All signals are blocked
//! meanwhile, for no handler of the program may run then.
//!
//! The kernel copies each page that parent or child write to afterwards. What of the shim's own a fork writes in either therefore lies together, in the
//! section `outpage_forks`, and is not written where it is as it shall be: one or two pages are copied, where five were.
//!
//! Nor may the kernel touch memory for the program then: it would wait for the resting pager, or find zeroes in the child.
//! So what `clone` and `clone3` are to write, or to set for the child, is done here once the pager runs ([`Copied`]).

use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicBool, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_engine::call::Call;
use outpage_engine::{Engine, Ticket};
use outpage_sys::{own, process};

use crate::checked::{self, Reader};
use crate::mode::{self, Path};
use crate::order::Order;
use crate::raw::{self, SignalsBlocked, thread_pointer};
use crate::{ARENA, budget, share, threads, trace};

/// This process has forked, or was forked, before it had a pager.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether another process may have what this one mapped shared before it had a pager: a child, as far as hooks see, or its parent.
pub fn may_share() -> bool {
    FORKED.load(Ordering::SeqCst) || !process::has_no_children()
}

/// Forks by calling `original`, which returns twice, as the kernel does: 0 in the child, the
/// child's number in the parent, or a negative error number.
pub fn fork(original: impl Fn() -> isize) -> isize {
    let _trace = trace::begin(trace::Hook::Fork);
    let _signals = SignalsBlocked::new();
    match mode::enter() {
        Path::Raw => original(),
        Path::Direct(_at_work) => {
            if !FORKED.load(Ordering::SeqCst) {
                FORKED.store(true, Ordering::SeqCst);
            }
            let result = with_heap_held(&original);
            if result == 0 {
                start_direct_child();
            }
            result
        }
        Path::Managed(engine) => {
            let _order = Order::take();
            let ticket = match prepare(engine, thread_pointer()) {
                Ok(ticket) => ticket,
                Err(refused) => return refused,
            };
            let result = with_heap_held(&original);
            if result == 0 {
                Order::forget_in_child();
                engine.fork_child(ticket);
                threads::forget_births();
            } else {
                engine.fork_parent(ticket, result as i32);
            }
            result
        }
    }
}

/// Forks while no thread is within the shim's allocator, so that the child finds it usable.
fn with_heap_held(original: impl Fn() -> isize) -> isize {
    let _held = ARENA.hold();
    original()
}

/// Brings the pager to rest, with the caller's stack mapped.
fn prepare(engine: &'static Engine, tls: usize) -> Result<Ticket, isize> {
    let here = 0u8;
    engine.fork_prepare((&raw const here) as usize, tls)
}

/// In the child of a process in direct mode: it counts for itself.
fn start_direct_child() {
    own::after_fork_in_child();
    mode::forget_other_threads();
    threads::forget_births();
    share::forget();
    budget::restart_in_child();
}

/// `struct clone_args` of include/uapi/linux/sched.h, in its largest version (Linux 5.7).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

/// `CLONE_ARGS_SIZE_VER0`: the kernel takes no less.
pub const CLONE_ARGS_MIN: usize = 64;
/// `MAX_PID_NS_LEVEL` of include/linux/pid_namespace.h: longest list of numbers for the child.
const SET_TID_MAX: usize = 32;

/// A child with a copy of the memory, as `clone` or `clone3` was asked for it.
pub struct Copied {
    /// The call it was asked by, and is made by: a filter may allow one of the two only.
    number: c_long,
    args: CloneArgs,
    /// Bytes of the structure that the caller passed.
    size: usize,
}

impl Copied {
    /// By `clone`, of which `flags` hold the signal; `stack` is the end of the child's, or 0.
    pub fn by_clone(flags: usize, stack: usize, ptid: usize, ctid: usize, tls: usize) -> Self {
        const SIGNAL: usize = 0xff;
        let args = CloneArgs {
            flags: (flags & !SIGNAL) as u64,
            exit_signal: (flags & SIGNAL) as u64,
            // The two share an argument, and exclude each other.
            pidfd: ptid as u64,
            parent_tid: ptid as u64,
            child_tid: ctid as u64,
            stack: stack as u64,
            tls: tls as u64,
            ..CloneArgs::default()
        };
        let size = size_of::<CloneArgs>();
        Self {
            number: libc::SYS_clone,
            args,
            size,
        }
    }

    /// By `clone3`; `None` where the kernel refuses the structure, or may know more of it than is known here.
    pub fn by_clone3(args: usize, size: usize) -> Option<Self> {
        const KNOWN: usize = size_of::<CloneArgs>();
        let sizes = CLONE_ARGS_MIN..=PAGE_BYTES;
        if !sizes.contains(&size) || !Reader::default().covers(args, size) {
            return None;
        }
        // SAFETY: it can be read, and is the program's for its call.
        let bytes = unsafe { core::slice::from_raw_parts(args as *const u8, size) };
        let (known, newer) = bytes.split_at(size.min(KNOWN));
        // What asks for nothing is taken by every kernel.
        if newer.iter().any(|&byte| byte != 0) {
            return None;
        }
        let mut copy = CloneArgs::default();
        let to = (&raw mut copy).cast::<u8>();
        // SAFETY: the copy has room for what is known.
        unsafe { to.copy_from_nonoverlapping(known.as_ptr(), known.len()) };
        Some(Self {
            number: libc::SYS_clone3,
            args: copy,
            size: known.len(),
        })
    }

    /// The end of the stack that the child is to go on with; 0 for a copy of this one.
    pub fn stack(&self) -> usize {
        (self.args.stack + self.args.stack_size) as usize
    }

    fn wants(&self, flag: c_int) -> bool {
        self.args.flags & flag as u32 as u64 != 0
    }

    /// Makes the child, which goes on with a copy of this stack. Returns as the kernel does.
    pub fn make(&self) -> isize {
        let mut set_tid = [0 as c_int; SET_TID_MAX];
        if let Err(refused) = self.check(&mut set_tid) {
            return -(refused as isize);
        }
        let mut pidfd: c_int = -1;
        let kernel = self.for_kernel(&raw mut pidfd, &set_tid);
        let result = fork(|| kernel.call());
        if result == 0 {
            self.settle_child();
        } else if result > 0 {
            self.settle_parent(result as c_int, pidfd);
        }
        result
    }

    /// Looks at what the kernel is not given to look at, and copies the list of numbers for the child. The errors are those of clone(2).
    fn check(&self, set_tid: &mut [c_int; SET_TID_MAX]) -> Result<(), c_int> {
        let a = &self.args;
        let by_clone3 = self.number == libc::SYS_clone3;
        if by_clone3 && (a.stack == 0) != (a.stack_size == 0) {
            return Err(libc::EINVAL);
        }
        let both = self.wants(libc::CLONE_PIDFD) && self.wants(libc::CLONE_PARENT_SETTID);
        if both && a.pidfd == a.parent_tid {
            return Err(libc::EINVAL);
        }
        if self.wants(libc::CLONE_PIDFD) && !checked::takes_number(a.pidfd as usize) {
            return Err(libc::EFAULT);
        }
        let mut list = Reader::default();
        for (i, number) in set_tid[..self.numbered()].iter_mut().enumerate() {
            let at = (a.set_tid as usize).wrapping_add(i * size_of::<c_int>());
            *number = list.value(at).ok_or(libc::EFAULT)?;
        }
        Ok(())
    }

    /// Numbers of the list for the child that the kernel will read; what is too long it refuses.
    const fn numbered(&self) -> usize {
        let count = self.args.set_tid_size as usize;
        if self.args.set_tid == 0 || count > SET_TID_MAX {
            0
        } else {
            count
        }
    }

    /// What the kernel is asked for: nothing that has it read or write the program's memory meanwhile.
    fn for_kernel(&self, pidfd: *mut c_int, set_tid: &[c_int; SET_TID_MAX]) -> Self {
        let ours = libc::CLONE_SETTLS
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_CHILD_SETTID
            | libc::CLONE_CHILD_CLEARTID;
        let mut args = self.args;
        args.flags &= !(ours as u32 as u64);
        (args.stack, args.stack_size) = (0, 0);
        (args.tls, args.child_tid, args.parent_tid) = (0, 0, 0);
        args.pidfd = pidfd as u64;
        if self.numbered() > 0 {
            args.set_tid = set_tid.as_ptr() as u64;
        }
        Self { args, ..*self }
    }

    fn call(&self) -> isize {
        let a = &self.args;
        let words = if self.number == libc::SYS_clone3 {
            [(&raw const *a) as usize, self.size, 0, 0, 0, 0]
        } else {
            let flags = (a.flags | a.exit_signal) as usize;
            [flags, 0, a.pidfd as usize, 0, 0, 0]
        };
        // SAFETY: a child with a copy of the memory, on a copy of this stack.
        unsafe { raw::call(self.number, words) }
    }

    fn settle_parent(&self, pid: c_int, pidfd: c_int) {
        if self.wants(libc::CLONE_PARENT_SETTID) {
            checked::store(self.args.parent_tid as usize, pid);
        }
        if self.wants(libc::CLONE_PIDFD) {
            checked::store(self.args.pidfd as usize, pidfd);
        }
    }

    /// In the child, whose pager runs.
    fn settle_child(&self) {
        let word = self.args.child_tid;
        if self.wants(libc::CLONE_CHILD_SETTID) {
            checked::store(word as usize, process::tid().0 as c_int);
        }
        if self.wants(libc::CLONE_CHILD_CLEARTID) {
            if let Path::Managed(engine) = mode::enter() {
                let addr = word as usize;
                engine.call(Call::KeepWord { addr });
            }
            // SAFETY: names the word that the program named.
            unsafe { raw::call(libc::SYS_set_tid_address, [word as usize, 0, 0, 0, 0, 0]) };
        }
        if self.wants(libc::CLONE_SETTLS) {
            let args = [ARCH_SET_FS, self.args.tls as usize, 0, 0, 0, 0];
            // SAFETY: nothing of ours uses thread-locals from here on; the program asked for it.
            unsafe { raw::call(libc::SYS_arch_prctl, args) };
        }
    }
}

/// Of include/uapi/asm/prctl.h (arch_prctl(2)).
const ARCH_SET_FS: usize = 0x1002;

/// The child of libc's `clone`: calls the program's function on the program's stack, then ends the process with its
/// result, the pager's threads included, as libc's own does.
#[unsafe(naked)]
pub unsafe extern "C" fn enter(entry: usize, argument: usize, stack: usize) -> ! {
    naked_asm!(
        "and rdx, -16",
        "mov rsp, rdx",
        "xor ebp, ebp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "mov edi, eax",
        "mov eax, {exit}",
        "syscall",
        "ud2",
        exit = const libc::SYS_exit_group,
    )
}
