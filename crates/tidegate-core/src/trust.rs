//! Which files and folders beside a store are trusted.
//!
//! They say which workers live and which processes are left of dead ones, and these are ended. So they
//! have to be the user's own: in a folder that others may write to anybody could put them there, or a
//! link to a file of the user that would be changed in their place. What is root's is trusted too, since
//! root can do all of that anyway. Root itself uses only what is root's: it could be made to end
//! everybody's processes.
//!
//! This only judges what was found.

use std::fmt;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A folder.
    Folder,
    /// A regular file.
    Regular,
    /// A named pipe.
    Pipe,
    /// A symbolic link.
    Link,
    /// Something else: a device, a socket.
    Other,
}

/// A file as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundFile {
    /// What it is.
    pub kind: FileKind,
    /// The number of the user it belongs to.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// Why a file is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untrusted {
    /// It is something else than it should be.
    Kind {
        /// What it is.
        found: FileKind,
        /// What it should be.
        wanted: FileKind,
    },
    /// It belongs to another user.
    Owner {
        /// To which.
        owner: u32,
        /// The user that wants to use it.
        user: u32,
    },
    /// Other users may write to it.
    Mode(u32),
}

impl FoundFile {
    /// Whether it is a folder that nobody but this user and root can put files into.
    ///
    /// # Errors
    /// It is not.
    pub fn check_folder(&self, user: u32) -> Result<(), Untrusted> {
        self.check_kind(FileKind::Folder)?;
        self.check_owner(user)?;
        match self.mode & 0o022 {
            0 => Ok(()),
            _ => Err(Untrusted::Mode(self.mode)),
        }
    }

    /// Whether it is this user's, or root's, and of this kind. It stands in a folder that was checked.
    ///
    /// # Errors
    /// It is not.
    pub fn check_file(&self, wanted: FileKind, user: u32) -> Result<(), Untrusted> {
        self.check_kind(wanted)?;
        self.check_owner(user)
    }

    /// Whether it belongs to this user or to root.
    ///
    /// # Errors
    /// It does not.
    pub fn check_owner(&self, user: u32) -> Result<(), Untrusted> {
        match self.owner {
            0 => Ok(()),
            owner if owner == user => Ok(()),
            owner => Err(Untrusted::Owner { owner, user }),
        }
    }

    fn check_kind(&self, wanted: FileKind) -> Result<(), Untrusted> {
        match self.kind {
            found if found == wanted => Ok(()),
            found => Err(Untrusted::Kind { found, wanted }),
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Folder => "a folder",
            FileKind::Regular => "a regular file",
            FileKind::Pipe => "a named pipe",
            FileKind::Link => "a symbolic link",
            FileKind::Other => "a device or socket",
        })
    }
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untrusted::Kind { found, wanted } => {
                write!(f, "it is {found}, and must be {wanted}; remove it")
            }
            Untrusted::Owner { owner, user } => {
                write!(f, "it belongs to user {owner}, and this process to user {user}; use the ")?;
                f.write_str("store as that user, or remove it")
            }
            Untrusted::Mode(mode) => {
                write!(
                    f,
                    "other users may write to it (its mode is {mode:04o}); take that right "
                )?;
                f.write_str("away with chmod go-w")
            }
        }
    }
}

impl std::error::Error for Untrusted {}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: FoundFile = FoundFile { kind: FileKind::Folder, owner: 7, mode: 0o700 };

    #[test]
    fn folder_is_trusted_if_its_owner_is_the_user_or_root_and_others_cannot_write() {
        for owner in [7, 0] {
            for mode in [0o700, 0o755, 0o500] {
                assert_eq!(FoundFile { owner, mode, ..FOLDER }.check_folder(7), Ok(()));
            }
        }
        for mode in [0o770, 0o702, 0o1777] {
            let found = FoundFile { mode, ..FOLDER };
            assert_eq!(found.check_folder(7), Err(Untrusted::Mode(mode)));
        }
        assert_eq!(FOLDER.check_folder(8), Err(Untrusted::Owner { owner: 7, user: 8 }));
        assert_eq!(FOLDER.check_folder(0), Err(Untrusted::Owner { owner: 7, user: 0 }));
        let (found, wanted) = (FileKind::Link, FileKind::Folder);
        let link = FoundFile { kind: found, ..FOLDER };
        assert_eq!(link.check_folder(7), Err(Untrusted::Kind { found, wanted }));
    }

    #[test]
    fn file_is_trusted_by_its_kind_and_owner() {
        let file = FoundFile { kind: FileKind::Regular, owner: 7, mode: 0o666 };
        assert_eq!(file.check_file(FileKind::Regular, 7), Ok(()));
        assert!(file.check_file(FileKind::Pipe, 7).is_err());
        assert!(file.check_file(FileKind::Regular, 8).is_err());
    }
}
