//! The machine and the process that this is, as the row of a worker names them.

use std::fs;

/// The name of the machine; `None` if the system does not tell.
pub(crate) fn host_name() -> Option<String> {
    read_line("/proc/sys/kernel/hostname")
}

/// The name of this start of the machine; `None` if the system does not tell.
pub(crate) fn boot_id() -> Option<String> {
    read_line("/proc/sys/kernel/random/boot_id")
}

fn read_line(path: &str) -> Option<String> {
    let line = fs::read_to_string(path).ok()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}
