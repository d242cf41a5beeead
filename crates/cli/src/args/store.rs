//! Options for commands that open a store themselves: its address, credentials, and the directory of blobs.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use jiff::Timestamp;
use muster_server::BlobPlace;
use muster_store::embedded::OpenFileError;
use muster_store::{OpenError, Store, StoreAccess};
use thiserror::Error;

use crate::failure::{Exit, Failure};
use crate::output::Notes;
use crate::process::blobs_in;
use crate::variables;

use super::Globals;

/// The options of `serve` and `up`, and of commands that work without a server.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Store options")]
pub struct StoreArgs {
    /// Store: embedded:PATH, or etcd://HOST:PORT[,HOST:PORT…]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Use TLS for etcd, with the certificate authority in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_ca: Option<PathBuf>,
    /// Client certificate for etcd (PEM)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_cert: Option<PathBuf>,
    /// Key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_key: Option<PathBuf>,
    /// User of etcd; its password is read from --store-password-file or MUSTER_STORE_PASSWORD
    #[arg(long, value_name = "NAME", requires = "store")]
    pub store_user: Option<String>,
    /// File with the password of the user, and nothing else
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_password_file: Option<PathBuf>,
    /// Directory, or bucket as s3://BUCKET/PREFIX (its credentials are in variables such as AWS_ACCESS_KEY_ID), for
    /// reports, logs and releases; several replicas need a shared one [default: `blobs` in the state directory]
    #[arg(long, value_name = "PLACE")]
    pub blobs: Option<PathBuf>,
}

/// Invalid combinations of store options.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum StoreArgsError {
    #[error("--store-cert requires --store-key")]
    NoKey,
    #[error("--store-key requires --store-cert")]
    NoCert,
    #[error("the password of the store's user {user} is missing")]
    NoPassword { user: String },
    #[error("--store-password-file requires --store-user")]
    NoUser,
    #[error("{} is empty: it must contain the password of the store's user", path.display())]
    EmptyPassword { path: PathBuf },
    #[error("cannot read the password of the store's user from {}", path.display())]
    Password {
        path: PathBuf,
        #[source]
        source: FileError,
    },
    #[error("{VARIABLE} is not valid UTF-8", VARIABLE = variables::STORE_PASSWORD)]
    PasswordNotText,
    #[error("{option} is for etcd: {store} is a file, and its permissions control the access")]
    NotForFiles { option: &'static str, store: String },
}

/// An IO error that can be compared in tests.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct FileError(#[from] io::Error);

impl PartialEq for FileError {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind() == other.0.kind()
    }
}

impl Eq for FileError {}

impl StoreArgs {
    /// The credentials of the store. `password` is the value of the environment variable.
    pub fn access(&self, password: Option<OsString>) -> Result<StoreAccess, StoreArgsError> {
        self.check_kind()?;
        match (&self.store_cert, &self.store_key) {
            (Some(_), None) => return Err(StoreArgsError::NoKey),
            (None, Some(_)) => return Err(StoreArgsError::NoCert),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let password = match (&self.store_user, &self.store_password_file) {
            (None, None) => None,
            (None, Some(_)) => return Err(StoreArgsError::NoUser),
            (Some(_), Some(path)) => Some(read_password(path)?),
            (Some(user), None) => {
                let password = password.ok_or_else(|| StoreArgsError::NoPassword { user: user.clone() })?;
                Some(password.into_string().map_err(|_| StoreArgsError::PasswordNotText)?)
            }
        };
        Ok(StoreAccess {
            ca: self.store_ca.clone(),
            cert: self.store_cert.clone(),
            key: self.store_key.clone(),
            user: self.store_user.clone(),
            password,
        })
    }

    /// Opens the chosen store, or the default.
    pub(crate) async fn open(&self, default: Option<&str>, notes: &mut Notes) -> Result<Arc<dyn Store>, Failure> {
        let (spec, access) = self.spec_and_access(default, notes)?;
        muster_store::open(&spec, &access).await.map_err(Failure::failed)
    }

    /// Opens the store for a restore. An embedded store that went back, or may have, is accepted: all of its environments begin a new epoch.
    pub(crate) async fn open_for_restore(&self, now: Timestamp, notes: &mut Notes) -> Result<Arc<dyn Store>, Failure> {
        let (spec, access) = self.spec_and_access(None, notes)?;
        match muster_store::open(&spec, &access).await {
            Err(error @ OpenError::Embedded(OpenFileError::WentBack { .. } | OpenFileError::UnknownHead { .. })) => {
                notes.note(format_args!("{error}"));
                let store = muster_store::open_for_restore(&spec, &access).await.map_err(Failure::failed)?;
                muster_server::begin_epochs(store.as_ref(), now).await.map_err(Failure::failed)?;
                Ok(store)
            }
            opened => opened.map_err(Failure::failed),
        }
    }

    fn spec_and_access(&self, default: Option<&str>, notes: &mut Notes) -> Result<(String, StoreAccess), Failure> {
        let access = self.access(std::env::var_os(variables::STORE_PASSWORD)).map_err(usage)?;
        if let Some(path) = self.store_password_file.as_deref().filter(|path| is_readable_by_others(path)) {
            notes.note(format_args!("{} can be read by other users: run `chmod 600` on it", path.display()));
        }
        let Some(spec) = self.store.as_deref().or(default) else {
            let failure = Failure::usage("--store is missing");
            return Err(failure.hint(
                "use --store embedded:PATH for a store in a file, or --store etcd://HOST:PORT for one that several \
                 servers share",
            ));
        };
        Ok((spec.to_owned(), access))
    }

    /// Opens a store that must exist: commands that only read it must not create one.
    pub(crate) async fn open_existing(&self, notes: &mut Notes) -> Result<Arc<dyn Store>, Failure> {
        if let Some(path) = self.store.as_deref().and_then(|store| store.strip_prefix("embedded:"))
            && !Path::new(path).exists()
        {
            return Err(Failure::failed(anyhow::anyhow!("there is no store at {path}")));
        }
        self.open(None, notes).await.map_err(|failure| {
            let in_use = matches!(failure.error.downcast_ref(), Some(OpenError::Embedded(OpenFileError::InUse { .. })));
            if in_use {
                failure.hint("if a server uses this store, omit --store: the request then goes to the server")
            } else {
                failure
            }
        })
    }

    /// The place of blobs, for a server with this state directory.
    pub(crate) fn blob_place(&self, state: &Path) -> Result<BlobPlace, Failure> {
        let local = blobs_in(state);
        place(self.blobs.as_ref().unwrap_or(&local), &local)
    }

    /// The place of blobs, for a command that opens the store itself.
    pub(crate) fn existing_blobs(&self, globals: &Globals) -> Result<BlobPlace, Failure> {
        match (&self.blobs, &globals.state) {
            (Some(_), Some(state)) => self.blob_place(state),
            (Some(blobs), None) => place(blobs, &std::env::temp_dir()),
            (None, Some(state)) => Ok(blobs_in(state).into()),
            (None, None) => {
                let failure = Failure::usage("the place of reports and logs is missing");
                Err(failure
                    .hint("give it with --blobs PLACE, or with --state DIR if it is in the server's state directory"))
            }
        }
    }

    /// Refuses credentials for a file: they would protect nothing.
    fn check_kind(&self) -> Result<(), StoreArgsError> {
        let Some(store) = self.store.as_ref().filter(|store| store.starts_with("embedded:")) else { return Ok(()) };
        let given = [
            ("--store-ca", self.store_ca.is_some()),
            ("--store-cert", self.store_cert.is_some()),
            ("--store-key", self.store_key.is_some()),
            ("--store-user", self.store_user.is_some()),
            ("--store-password-file", self.store_password_file.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(StoreArgsError::NotForFiles { option, store: store.clone() }),
            None => Ok(()),
        }
    }
}

fn place(text: &Path, local: &Path) -> Result<BlobPlace, Failure> {
    BlobPlace::parse(
        text,
        local,
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    )
    .map_err(|error| Failure::usage(error.to_string()))
}

fn usage(error: StoreArgsError) -> Failure {
    let hint = match &error {
        StoreArgsError::NoKey | StoreArgsError::NoCert => Some("give both, or neither"),
        StoreArgsError::NoPassword { .. } => {
            Some("write it to a file that only you can read, and pass the file with --store-password-file")
        }
        StoreArgsError::NoUser => Some("give the name of the user with --store-user NAME"),
        StoreArgsError::EmptyPassword { .. }
        | StoreArgsError::Password { .. }
        | StoreArgsError::PasswordNotText
        | StoreArgsError::NotForFiles { .. } => None,
    };
    let failure = Failure::new(Exit::Usage, error);
    hint.into_iter().fold(failure, Failure::hint)
}

/// Reads a password, without the newline that editors and `echo` add.
fn read_password(path: &Path) -> Result<String, StoreArgsError> {
    let text = fs::read_to_string(path)
        .map_err(|source| StoreArgsError::Password { path: path.to_owned(), source: source.into() })?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(StoreArgsError::EmptyPassword { path: path.to_owned() }),
        password => Ok(password.to_owned()),
    }
}

fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o044 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETCD: &str = "etcd://127.0.0.1:2379";

    fn args(store: &str) -> StoreArgs {
        StoreArgs { store: Some(store.into()), ..StoreArgs::default() }
    }

    #[test]
    fn incomplete_options_are_refused() {
        let path = || Some(PathBuf::from("/x.pem"));
        let table = [
            (StoreArgs { store_cert: path(), ..args(ETCD) }, StoreArgsError::NoKey),
            (StoreArgs { store_key: path(), ..args(ETCD) }, StoreArgsError::NoCert),
            (
                StoreArgs { store_user: Some("root".into()), ..args(ETCD) },
                StoreArgsError::NoPassword { user: "root".into() },
            ),
            (StoreArgs { store_password_file: path(), ..args(ETCD) }, StoreArgsError::NoUser),
            (
                StoreArgs { store_ca: path(), ..args("embedded:/store") },
                StoreArgsError::NotForFiles { option: "--store-ca", store: "embedded:/store".into() },
            ),
        ];
        for (args, expected) in table {
            assert_eq!(args.access(None).unwrap_err(), expected);
        }
    }

    #[test]
    fn password_comes_from_file_or_environment() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let user = StoreArgs { store_user: Some("root".into()), ..args(ETCD) };
        let from_file = StoreArgs { store_password_file: Some(file.clone()), ..user.clone() };
        assert!(matches!(from_file.access(None), Err(StoreArgsError::Password { .. })));
        for (text, password) in [("secret\n", "secret"), ("secret", "secret"), (" two words \r\n", " two words ")] {
            fs::write(&file, text).unwrap();
            let access = from_file.access(Some("other".into())).unwrap();
            assert_eq!((access.user.as_deref(), access.password.as_deref()), (Some("root"), Some(password)));
        }
        fs::write(&file, "\n").unwrap();
        assert_eq!(from_file.access(None).unwrap_err(), StoreArgsError::EmptyPassword { path: file });
        assert_eq!(user.access(Some("other".into())).unwrap().password.as_deref(), Some("other"));
        // Ignored without a user.
        assert_eq!(args(ETCD).access(Some("other".into())).unwrap().password, None);
    }
}
