//! Writes and finds the two files of a release: the bundle, named by its digest, and the signed manifest
//! `<version>.release.json`.
//!
//! A manifest names its bundle by digest; for a bundle the manifests in the same directory are searched. Commands accept
//! either file.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use muster_core::names::Version;
use muster_core::release::manifest::{Digest, Manifest, PayloadError, PublicKey, Signature, SignedManifest};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bundle::{self, BundleInfo, PackError, digest_of};
use crate::key::SigningKey;
use crate::manifest::{self, ReleaseLabel};
use crate::temp_path::TempPath;
use crate::tree::ReleaseTree;

/// Format marker of the manifest file.
const FORMAT_MARK: &str = "muster release 1";
const MANIFEST_SUFFIX: &str = ".release.json";
/// Bytes of a manifest file: far more than the payload and all signatures need.
const MANIFEST_LIMIT: u64 = 64 * 1024;

#[derive(Debug, Error)]
pub enum BuildReleaseError {
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error("cannot create the manifest")]
    Manifest(#[from] PayloadError),
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, Error)]
pub enum FindReleaseError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is neither a bundle (.tar.zst) nor the manifest of one ({MANIFEST_SUFFIX})", path.display())]
    NotARelease { path: PathBuf },
    #[error("cannot parse the manifest {}", path.display())]
    Manifest {
        path: PathBuf,
        #[source]
        source: PayloadError,
    },
    #[error("the bundle of {} is missing from its directory: there is no {}", manifest.display(), bundle.display())]
    NoBundle { manifest: PathBuf, bundle: PathBuf },
    #[error("{} has several manifests; name one of them: {}", bundle.display(), join_paths(manifests))]
    Ambiguous { bundle: PathBuf, manifests: Vec<PathBuf> },
}

fn join_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestJson {
    format: String,
    payload: String,
    signatures: Vec<Signature>,
}

/// The files of a release that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltRelease {
    pub bundle: PathBuf,
    pub manifest_file: PathBuf,
    pub manifest: Manifest,
    pub signed: SignedManifest,
    pub packed: BundleInfo,
    /// The same release existed already, with the same signers; its manifest was not rewritten.
    pub unchanged: bool,
}

/// Packs a tree into `directory`, signs it and writes both files.
///
/// An existing manifest of the same content, signed by the same keys, is kept: a second build is a no-op.
/// `fixed_serial` means that the serial of the label was chosen by the operator and must match.
pub fn build(
    tree: &ReleaseTree,
    directory: &Path,
    label: ReleaseLabel,
    fixed_serial: bool,
    keys: &[SigningKey],
) -> Result<BuiltRelease, BuildReleaseError> {
    let (bundle, packed) = bundle::pack_into(tree, directory)?;
    let manifest_file = directory.join(manifest_name(&label.version));
    let wanted = manifest::create(label, &packed);
    let before = read_manifest(&manifest_file).ok().and_then(|signed| Some((signed.read().ok()?, signed)));
    if let Some((manifest, signed)) = before.filter(|(manifest, signed)| {
        let same_serial = !fixed_serial || manifest.serial == wanted.serial;
        same_serial && is_same_release(manifest, &wanted) && is_signed_by(signed, &public_halves(keys))
    }) {
        return Ok(BuiltRelease { bundle, manifest_file, manifest, signed, packed, unchanged: true });
    }
    let signed = manifest::sign(&wanted, keys)?;
    let written = write_manifest(directory, &manifest_file, &signed);
    written.map_err(|source| BuildReleaseError::Write { path: manifest_file.clone(), source })?;
    Ok(BuiltRelease { bundle, manifest_file, manifest: wanted, signed, packed, unchanged: false })
}

/// Compares two manifests except for serial and creation time. A manifest with an expiry is always rewritten: the new one
/// expires later.
fn is_same_release(before: &Manifest, wanted: &Manifest) -> bool {
    let undated = |manifest: &Manifest| Manifest { serial: 0, created: wanted.created, ..manifest.clone() };
    undated(before) == undated(wanted) && wanted.expires.is_none()
}

fn public_halves(keys: &[SigningKey]) -> Vec<PublicKey> {
    keys.iter().map(|key| key.public().clone()).collect()
}

fn is_signed_by(signed: &SignedManifest, keys: &[PublicKey]) -> bool {
    let alone =
        |signature: &Signature| SignedManifest { payload: signed.payload.clone(), signatures: vec![signature.clone()] };
    signed.signatures.len() == keys.len()
        && signed.signatures.iter().all(|signature| manifest::authenticate(&alone(signature), keys).is_ok())
}

/// File name of a manifest.
pub fn manifest_name(version: &Version) -> String {
    format!("{version}{MANIFEST_SUFFIX}")
}

fn write_manifest(directory: &Path, path: &Path, signed: &SignedManifest) -> io::Result<()> {
    let SignedManifest { payload, signatures } = signed.clone();
    let mut text = serde_json::to_string_pretty(&ManifestJson { format: FORMAT_MARK.to_owned(), payload, signatures })?;
    text.push('\n');
    let temporary = TempPath::in_dir(directory, "manifest");
    let mut file = fs::File::create_new(temporary.path())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    temporary.rename_to(path)
}

fn read_manifest(path: &Path) -> Result<SignedManifest, FindReleaseError> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MANIFEST_LIMIT).read_to_string(&mut text));
    read.map_err(|source| FindReleaseError::Read { path: path.to_owned(), source })?;
    let not_a_release = || FindReleaseError::NotARelease { path: path.to_owned() };
    let file: ManifestJson = serde_json::from_str(&text).map_err(|_| not_a_release())?;
    if file.format != FORMAT_MARK {
        return Err(not_a_release());
    }
    Ok(SignedManifest { payload: file.payload, signatures: file.signatures })
}

/// The files of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseFiles {
    pub bundle: PathBuf,
    /// None if no manifest was found for the bundle.
    pub signed: Option<LocatedManifest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedManifest {
    pub path: PathBuf,
    pub signed: SignedManifest,
    /// The parsed payload; not verified.
    pub manifest: Manifest,
}

/// Finds both files of a release from either of them. Verifies nothing.
pub fn find(path: &Path) -> Result<ReleaseFiles, FindReleaseError> {
    let failed = |source| FindReleaseError::Read { path: path.to_owned(), source };
    let mut head = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read(&mut head)).map_err(failed)?;
    match head.get(..read) {
        Some([0x28, 0xb5, 0x2f, 0xfd]) => from_bundle(path),
        Some([b'{', ..]) => {
            let found = locate_manifest(path)?;
            let bundle = parent_dir(path).join(bundle::file_name(&found.manifest.digest));
            if !bundle.exists() {
                return Err(FindReleaseError::NoBundle { manifest: path.to_owned(), bundle });
            }
            Ok(ReleaseFiles { bundle, signed: Some(found) })
        }
        Some(_) | None => Err(FindReleaseError::NotARelease { path: path.to_owned() }),
    }
}

fn locate_manifest(path: &Path) -> Result<LocatedManifest, FindReleaseError> {
    let signed = read_manifest(path)?;
    let manifest = signed.read().map_err(|source| FindReleaseError::Manifest { path: path.to_owned(), source })?;
    Ok(LocatedManifest { path: path.to_owned(), signed, manifest })
}

fn from_bundle(bundle: &Path) -> Result<ReleaseFiles, FindReleaseError> {
    let failed = |source| FindReleaseError::Read { path: bundle.to_owned(), source };
    // The file name has the digest, unless the file was renamed. The digest is verified later in any case.
    let name = bundle.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named = name.strip_prefix("sha256-").and_then(|name| name.strip_suffix(".tar.zst"));
    let digest = match named.and_then(|hex| Digest::new(format!("sha256:{hex}")).ok()) {
        Some(digest) => digest,
        None => fs::File::open(bundle).and_then(digest_of).map_err(failed)?.0,
    };
    let mut manifests = Vec::new();
    for entry in fs::read_dir(parent_dir(bundle)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.to_str().is_some_and(|path| path.ends_with(MANIFEST_SUFFIX)) {
            manifests.extend(locate_manifest(&path).ok().filter(|found| found.manifest.digest == digest));
        }
    }
    manifests.sort_by(|a, b| a.path.cmp(&b.path));
    if manifests.len() > 1 {
        let manifests = manifests.into_iter().map(|found| found.path).collect();
        return Err(FindReleaseError::Ambiguous { bundle: bundle.to_owned(), manifests });
    }
    Ok(ReleaseFiles { bundle: bundle.to_owned(), signed: manifests.pop() })
}

fn parent_dir(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
