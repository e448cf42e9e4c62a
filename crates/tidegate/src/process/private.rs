//! Files beside a store, as something that another user may have put there.

use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use tidegate_core::trust::{FileKind, FoundFile, Untrusted};

/// Whether a folder that is there is the user's own: others can neither put files into it nor have put
/// it there. It may be a link of the user's.
///
/// # Errors
/// It is not, or is not there.
#[doc(hidden)]
pub fn check_folder(path: &Path) -> io::Result<()> {
    let at = |why: Untrusted| {
        io::Error::other(format!("cannot use the folder {}: {why}", path.display()))
    };
    let found = describe_file(&fs::symlink_metadata(path)?);
    if found.kind != FileKind::Link {
        return found.check_folder(current_user()).map_err(at);
    }
    found.check_owner(current_user()).map_err(at)?;
    describe_file(&fs::metadata(path)?).check_folder(current_user()).map_err(at)
}

/// Opens a file to read it. A link is not followed, and a pipe does not make it wait.
///
/// # Errors
/// It cannot be opened, or is not a regular file of the user's own.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only there somebody reads notes"))]
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let found = describe_file(&file.metadata()?).check_file(FileKind::Regular, current_user());
    found.map_err(|why| io::Error::other(format!("cannot use {}: {why}", path.display())))?;
    Ok(file)
}

/// What is told of a file.
fn describe_file(found: &fs::Metadata) -> FoundFile {
    let kind = match found.file_type() {
        kind if kind.is_dir() => FileKind::Folder,
        kind if kind.is_file() => FileKind::Regular,
        kind if kind.is_symlink() => FileKind::Link,
        kind if kind.is_fifo() => FileKind::Pipe,
        _ => FileKind::Other,
    };
    FoundFile { kind, owner: found.uid(), mode: found.mode() & 0o7777 }
}

fn current_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
