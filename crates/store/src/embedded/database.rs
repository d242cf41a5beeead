//! Opening the file: creating it whole or not at all, and telling apart all that can be wrong with it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable};

use super::file::{FileLog, LoggedFile};
use super::numbers::Numbers;
use super::tables::{FORMAT, HISTORY, KEYS, LEASED, LEASES, META};

/// Why an embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the store {} is in use by another process: stop that one, or give this one a store of its own", .path.display())]
    InUse { path: PathBuf },

    #[error("{} is not a store of Muster: give the path of one, or of a file that does not exist yet", .path.display())]
    Foreign {
        path: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("the store {} is damaged: keep a copy of the file, and restore a backup", .path.display())]
    Corrupt {
        path: PathBuf,
        #[source]
        cause: redb::Error,
    },

    #[error("the store {} has format {found}, this version of Muster reads format {FORMAT}: use the version that wrote it", .path.display())]
    Format { path: PathBuf, found: u64 },

    #[error("cannot {doing} {}", .path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

const FORMAT_KEY: &str = "format";

/// The first bytes of every file of redb. A file without them was never a store, however damaged.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// A database that is open, and what the writer has to know of it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) numbers: Numbers,
    pub(super) leases: Vec<(i64, Duration)>,
}

/// Opens the file, creating it (and its directory) if there is none.
pub(super) fn open_or_create(path: &Path, cache: usize, log: &Arc<FileLog>) -> Result<Opened, OpenError> {
    let exists = path.try_exists().map_err(|cause| OpenError::Io { doing: "look at", path: path.to_owned(), cause })?;
    if !exists {
        create(path)?;
    }
    open(path, cache, log)
}

/// Opens a file that is there.
pub(super) fn open(path: &Path, cache: usize, log: &Arc<FileLog>) -> Result<Opened, OpenError> {
    let io = |doing, cause| OpenError::Io { doing, path: path.to_owned(), cause };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| io("open", e))?;
    check_magic(path, &file)?;
    let backend = LoggedFile::new(file, Arc::clone(log)).map_err(|e| refuse(path, e))?;
    let database =
        Builder::new().set_cache_size(cache).create_with_backend(backend).map_err(|error| refuse(path, error))?;
    let numbers = read_numbers(path, &database)?;
    let leases = read_leases(&database).map_err(|error| unreadable(path, "read", error))?;
    Ok(Opened { database, numbers, leases })
}

/// Makes a new store under another name and gives it its own when it is complete, so that a crash at any point
/// leaves a whole store or none. A link fails if the name is taken: of two that start at once, one makes it.
fn create(path: &Path) -> Result<(), OpenError> {
    let io = |doing, cause| OpenError::Io { doing, path: path.to_owned(), cause };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory).map_err(|e| io("create the directory of", e))?;
    let mut name = path.file_name().ok_or_else(|| io("create", io::ErrorKind::InvalidFilename.into()))?.to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let draft = directory.join(name);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("create", error)),
        _ => {}
    }

    let result = initialise(path, &draft).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io("create", error)),
        _ => Ok(()),
    });
    let removed = fs::remove_file(&draft);
    result?;
    removed.map_err(|e| io("create", e))?;
    // The name, too, has to survive a power failure.
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|e| io("sync the directory of", e))
}

fn initialise(path: &Path, draft: &Path) -> Result<(), OpenError> {
    let fill = || -> Result<(), redb::Error> {
        let database = Builder::new().create(draft)?;
        // It comes to hold secrets; nothing is in it yet.
        fs::set_permissions(draft, fs::Permissions::from_mode(0o600))?;
        let txn = database.begin_write()?;
        // Every table is made here, so that readers may rely on all of them.
        txn.open_table(KEYS)?;
        txn.open_table(HISTORY)?;
        txn.open_table(LEASES)?;
        txn.open_table(LEASED)?;
        txn.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
        txn.commit()?;
        Ok(())
    };
    fill().map_err(|error| unreadable(path, "create", error))
}

fn check_magic(path: &Path, mut file: &File) -> Result<(), OpenError> {
    let mut first = [0; MAGIC.len()];
    let foreign = |cause| OpenError::Foreign { path: path.to_owned(), cause };
    match io::Read::read_exact(&mut file, &mut first) {
        Ok(()) if first == MAGIC => Ok(()),
        Ok(()) => Err(foreign("its first bytes are those of another kind of file".into())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(foreign("it is too short to be one".into())),
        Err(cause) => Err(OpenError::Io { doing: "read", path: path.to_owned(), cause }),
    }
}

fn refuse(path: &Path, error: DatabaseError) -> OpenError {
    if let DatabaseError::DatabaseAlreadyOpen = error {
        return OpenError::InUse { path: path.to_owned() };
    }
    unreadable(path, "open", error.into())
}

/// Sorts out what redb says: an error of the system is passed on, anything else is wrong with the content.
fn unreadable(path: &Path, doing: &'static str, error: redb::Error) -> OpenError {
    let path = path.to_owned();
    if let redb::Error::Io(cause) = error {
        return OpenError::Io { doing, path, cause };
    }
    if let redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. } = error {
        return OpenError::Foreign { path, cause: error.into() };
    }
    OpenError::Corrupt { path, cause: error }
}

fn read_numbers(path: &Path, database: &Database) -> Result<Numbers, OpenError> {
    let read = || -> Result<(Option<u64>, Numbers), redb::Error> {
        let txn = database.begin_read()?;
        let meta = txn.open_table(META)?;
        let format = meta.get(FORMAT_KEY)?.map(|format| format.value());
        Ok((format, Numbers::read(&meta)?))
    };
    match read() {
        Ok((Some(FORMAT), numbers)) => Ok(numbers),
        Ok((Some(found), _)) => Err(OpenError::Format { path: path.to_owned(), found }),
        Ok((None, _)) => {
            Err(OpenError::Foreign { path: path.to_owned(), cause: "it does not say which format it has".into() })
        }
        Err(error) => Err(unreadable(path, "read", error)),
    }
}

fn read_leases(database: &Database) -> Result<Vec<(i64, Duration)>, redb::Error> {
    let txn = database.begin_read()?;
    let table = txn.open_table(LEASES)?;
    let mut leases = Vec::new();
    for row in table.iter()? {
        let (lease, ttl) = row?;
        leases.push((lease.value(), Duration::from_millis(ttl.value())));
    }
    Ok(leases)
}
