//! Files beside the database, opened so that nothing of another user is followed, waited for or changed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use tidegate_core::trust::FileKind;
#[cfg(unix)]
use tidegate_core::trust::{FoundFile, Untrusted};

/// Opens a regular file. A link is not followed, and a pipe does not make it wait.
///
/// # Errors
/// It cannot be opened, or is not a regular file of ours.
pub(crate) fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_kind(path, options, FileKind::Regular)
}

/// The same for a file of this kind.
#[cfg(unix)]
pub(crate) fn open_kind(
    path: &Path,
    options: &mut OpenOptions,
    kind: FileKind,
) -> io::Result<File> {
    use rustix::fs::OFlags;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags.bits().cast_signed());
    let file = options.open(path).map_err(|error| {
        match error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
            true => io::Error::other(Untrusted::Kind { found: FileKind::Link, wanted: kind }),
            false => error,
        }
    })?;
    describe_file(&file.metadata()?).check_file(kind, current_user()).map_err(io::Error::other)?;
    Ok(file)
}

#[cfg(not(unix))]
pub(crate) fn open_kind(path: &Path, options: &mut OpenOptions, _: FileKind) -> io::Result<File> {
    options.open(path)
}

/// Whether a folder that is there is ours alone. It may be a link of ours.
///
/// # Errors
/// It is not, or is not there.
#[cfg(unix)]
pub(crate) fn check_folder(path: &Path) -> io::Result<()> {
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

#[cfg(not(unix))]
pub(crate) fn check_folder(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Takes away from others what the umask leaves them of a file, and gives back what it takes from us,
/// where files have modes. One that is root's is left as it is.
#[cfg(unix)]
pub(crate) fn make_private(file: &File) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if file.metadata().is_ok_and(|found| found.uid() == current_user()) {
        let _ = file.set_permissions(PermissionsExt::from_mode(0o600));
    }
}

#[cfg(not(unix))]
pub(crate) fn make_private(_: &File) {}

/// What is told of a file.
#[cfg(unix)]
fn describe_file(found: &fs::Metadata) -> FoundFile {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let kind = match found.file_type() {
        kind if kind.is_dir() => FileKind::Folder,
        kind if kind.is_file() => FileKind::Regular,
        kind if kind.is_symlink() => FileKind::Link,
        kind if kind.is_fifo() => FileKind::Pipe,
        _ => FileKind::Other,
    };
    FoundFile { kind, owner: found.uid(), mode: found.mode() & 0o7777 }
}

#[cfg(unix)]
fn current_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
