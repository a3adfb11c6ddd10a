//! Exact remedies: what to type, or what to give a container.

use std::path::Path;

use outpage_sys::kernel::Version;
use outpage_sys::raw::Errno;

/// The first kernel with `/dev/userfaultfd`.
const DEVICE_SINCE: Version = Version { major: 6, minor: 1 };

/// The rule that lets every user page, for good.
const UDEV_RULE: &str = r#"KERNEL=="userfaultfd", MODE="0666""#;

/// What to do where neither the device nor the system call gives a userfaultfd.
#[must_use]
pub fn no_route(device: Errno, call: Errno) -> String {
    choose(device, call, in_container(), Version::running())
}

fn choose(device: Errno, call: Errno, container: bool, kernel: Version) -> String {
    if call == Errno::ENOSYS && device == Errno::ENOENT && !container {
        return "this kernel has no userfaultfd (CONFIG_USERFAULTFD); boot one that has it".into();
    }
    // A device that is there and closed has a mode that can be changed, in a container too.
    if container && device != Errno::EACCES {
        return "start the container with --device /dev/userfaultfd, readable and writable for its user \
                (before Linux 6.1: with a seccomp profile that allows userfaultfd, and vm.unprivileged_userfaultfd=1 on the host)"
            .into();
    }
    if kernel < DEVICE_SINCE {
        return "as root: sysctl -w vm.unprivileged_userfaultfd=1 (and for good: echo vm.unprivileged_userfaultfd=1 > /etc/sysctl.d/60-userfaultfd.conf)".into();
    }
    if device == Errno::ENOENT {
        return "as root: mknod /dev/userfaultfd c 10 $(awk '$2 == \"userfaultfd\" {print $1}' /proc/misc) && chmod 666 /dev/userfaultfd".into();
    }
    format!(
        "as root, until the next boot: setfacl -m u:{user}:rw /dev/userfaultfd (or chmod 666 /dev/userfaultfd); \
         for good: echo '{UDEV_RULE}' > /etc/udev/rules.d/60-userfaultfd.rules && udevadm control --reload && udevadm trigger; \
         or for this program alone: setcap cap_dac_override=ep {program}",
        user = user(),
        program = std::env::current_exe()
            .unwrap_or_else(|_| "outpage".into())
            .display()
    )
}

fn user() -> String {
    std::env::var("USER")
        .ok()
        .filter(|u| !u.is_empty())
        .unwrap_or_else(|| "USER".into())
}

/// Whether this looks like the inside of a container.
#[must_use]
pub fn in_container() -> bool {
    let marked = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|file| Path::new(file).exists());
    marked || std::env::var_os("container").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Version = Version {
        major: 6,
        minor: 12,
    };
    const OLD: Version = Version {
        major: 5,
        minor: 15,
    };

    #[test]
    fn each_lack_has_its_remedy() {
        let cases = [
            (
                Errno::ENOENT,
                Errno::ENOSYS,
                false,
                NEW,
                "CONFIG_USERFAULTFD",
            ),
            (Errno::EACCES, Errno::EPERM, false, NEW, "setfacl"),
            (Errno::EACCES, Errno::EPERM, false, NEW, UDEV_RULE),
            (Errno::EACCES, Errno::EPERM, false, NEW, "setcap"),
            (
                Errno::ENOENT,
                Errno::EPERM,
                false,
                OLD,
                "sysctl -w vm.unprivileged_userfaultfd=1",
            ),
            (
                Errno::ENOENT,
                Errno::EPERM,
                true,
                NEW,
                "--device /dev/userfaultfd",
            ),
            (
                Errno::EPERM,
                Errno::EPERM,
                true,
                NEW,
                "--device /dev/userfaultfd",
            ),
            (Errno::EACCES, Errno::EPERM, true, NEW, "setfacl"),
            (Errno::ENOENT, Errno::EPERM, false, NEW, "mknod"),
        ];
        for (device, call, container, kernel, part) in cases {
            let text = choose(device, call, container, kernel);
            assert!(text.contains(part), "{part:?} is not in {text:?}");
            assert!(!text.contains('\n'));
        }
    }
}
