//! Opens and creates the file. Creation is atomic, and each defect of a file has an error of its own.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable};

use super::file::{FileLog, LoggedFile};
use super::format::{FORMAT, HISTORY, KEYS, LEASED, LEASES, META, StoreCounters};

/// An embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFileError {
    #[error("the store {} is in use by another process: stop that process, or choose another store", .path.display())]
    InUse { path: PathBuf },

    #[error("{} is not a store of Muster: give the path of a store, or of a new file", .path.display())]
    Foreign {
        path: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("the store {} is corrupt: keep a copy of the file and restore a backup", .path.display())]
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

/// The first bytes of every redb file. A file without them was never a store.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// An open database, with the state that the writer needs.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) database: Database,
    pub(super) counters: StoreCounters,
    pub(super) leases: Vec<(i64, Duration)>,
}

/// Opens the file. Creates it, and its directory, if it does not exist.
pub(super) fn open_or_create(path: &Path, cache: usize, log: &Arc<FileLog>) -> Result<OpenDatabase, OpenFileError> {
    let exists =
        path.try_exists().map_err(|cause| OpenFileError::Io { doing: "look at", path: path.to_owned(), cause })?;
    if !exists {
        create(path)?;
    }
    open(path, cache, log)
}

/// Opens an existing file.
pub(super) fn open(path: &Path, cache: usize, log: &Arc<FileLog>) -> Result<OpenDatabase, OpenFileError> {
    let io = |doing, cause| OpenFileError::Io { doing, path: path.to_owned(), cause };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| io("open", e))?;
    check_magic(path, &file)?;
    let backend = LoggedFile::new(file, Arc::clone(log)).map_err(|e| open_error(path, e))?;
    let database =
        Builder::new().set_cache_size(cache).create_with_backend(backend).map_err(|error| open_error(path, error))?;
    let counters = read_counters(path, &database)?;
    let leases = read_leases(&database).map_err(|error| storage_error(path, "read", error))?;
    Ok(OpenDatabase { database, counters, leases })
}

/// Creates a store under a temporary name and links it when it is complete, so that a crash leaves a complete store or
/// none. The link fails if the name exists: of two processes that start together, one creates the store.
fn create(path: &Path) -> Result<(), OpenFileError> {
    let io = |doing, cause| OpenFileError::Io { doing, path: path.to_owned(), cause };
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
    // The directory entry has to survive a power failure, too.
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|e| io("sync the directory of", e))
}

fn initialise(path: &Path, draft: &Path) -> Result<(), OpenFileError> {
    let fill = || -> Result<(), redb::Error> {
        let database = Builder::new().create(draft)?;
        // The store will contain secrets.
        fs::set_permissions(draft, fs::Permissions::from_mode(0o600))?;
        let txn = database.begin_write()?;
        // All tables are created here: readers rely on them.
        txn.open_table(KEYS)?;
        txn.open_table(HISTORY)?;
        txn.open_table(LEASES)?;
        txn.open_table(LEASED)?;
        txn.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
        txn.commit()?;
        Ok(())
    };
    fill().map_err(|error| storage_error(path, "create", error))
}

fn check_magic(path: &Path, mut file: &File) -> Result<(), OpenFileError> {
    let mut first = [0; MAGIC.len()];
    let foreign = |cause| OpenFileError::Foreign { path: path.to_owned(), cause };
    match io::Read::read_exact(&mut file, &mut first) {
        Ok(()) if first == MAGIC => Ok(()),
        Ok(()) => Err(foreign("the first bytes are not those of a store".into())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(foreign("the file is too short".into())),
        Err(cause) => Err(OpenFileError::Io { doing: "read", path: path.to_owned(), cause }),
    }
}

fn open_error(path: &Path, error: DatabaseError) -> OpenFileError {
    if let DatabaseError::DatabaseAlreadyOpen = error {
        return OpenFileError::InUse { path: path.to_owned() };
    }
    storage_error(path, "open", error.into())
}

/// Converts an error of redb: I/O errors are passed on, all others mean bad content.
fn storage_error(path: &Path, doing: &'static str, error: redb::Error) -> OpenFileError {
    let path = path.to_owned();
    if let redb::Error::Io(cause) = error {
        return OpenFileError::Io { doing, path, cause };
    }
    if let redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. } = error {
        return OpenFileError::Foreign { path, cause: error.into() };
    }
    OpenFileError::Corrupt { path, cause: error }
}

fn read_counters(path: &Path, database: &Database) -> Result<StoreCounters, OpenFileError> {
    let read = || -> Result<(Option<u64>, StoreCounters), redb::Error> {
        let txn = database.begin_read()?;
        let meta = txn.open_table(META)?;
        let format = meta.get(FORMAT_KEY)?.map(|format| format.value());
        Ok((format, StoreCounters::read(&meta)?))
    };
    match read() {
        Ok((Some(FORMAT), counters)) => Ok(counters),
        Ok((Some(found), _)) => Err(OpenFileError::Format { path: path.to_owned(), found }),
        Ok((None, _)) => {
            Err(OpenFileError::Foreign { path: path.to_owned(), cause: "the file has no format version".into() })
        }
        Err(error) => Err(storage_error(path, "read", error)),
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
