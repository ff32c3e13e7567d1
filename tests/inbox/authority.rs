//! Certificates for the servers of the tests.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// A certificate authority, and the certificates that it issued, as files.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub(crate) file: PathBuf,
}

impl Authority {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        let file = folder.join(format!("{name}.crt"));
        fs::write(&file, certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { issuer, file }
    }

    /// Issues a certificate until the end of this year. Returns it and its key as PEM.
    pub(crate) fn issue(&self, name: &str, year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
