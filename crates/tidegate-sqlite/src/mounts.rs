//! On what kind of file system a file is.
//!
//! SQLite's log needs memory shared by all processes that use it, and locks that work. Network file
//! systems have neither, and a database on one is damaged sooner or later without a word.

use std::path::{Path, PathBuf};

/// File systems that reach another machine, as Linux names them.
const OVER_A_NETWORK: &str = "9p afs beegfs ceph cifs coda davfs glusterfs gpfs lustre ncpfs nfs \
    nfs4 orangefs pvfs2 smb3 smbfs";

/// The same by way of FUSE.
const OVER_A_NETWORK_BY_FUSE: &str = "ceph curlftpfs davfs davfs2 gcsfuse glusterfs goofys juicefs \
    mount-s3 rclone s3fs smbnetfs sshfs";

/// A network file system and where it is mounted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) kind: String,
    pub(crate) mount: PathBuf,
}

/// The network file system that a file is on, given by its whole path without links. `None` also
/// where there is no telling.
pub(crate) fn network_of(file: &Path) -> Option<Network> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    network_in(&String::from_utf8_lossy(&mounts), file)
}

pub(crate) fn network_in(mounts: &str, file: &Path) -> Option<Network> {
    let above = mounts.lines().filter_map(mount).filter(|(at, _)| file.starts_with(at));
    // The innermost one; of those at the same place, the last hides the others.
    let (mount, kind) = above.max_by_key(|(at, _)| at.components().count())?;
    let (kinds, name) = match kind.strip_prefix("fuse.") {
        Some(name) => (OVER_A_NETWORK_BY_FUSE, name),
        None => (OVER_A_NETWORK, kind),
    };
    let is_network = kinds.split(' ').any(|network| network == name);
    is_network.then(|| Network { kind: kind.to_owned(), mount })
}

/// Where a mount is and of which kind, from its line.
fn mount(line: &str) -> Option<(PathBuf, &str)> {
    let (place, file_system) = line.split_once(" - ")?;
    let at = place.split(' ').nth(4)?;
    Some((unescape(at).into(), file_system.split(' ').next()?))
}

/// Blanks, tabs, ends of line and backslashes are written as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}
