//! TLS with rustls, as the options of libpq describe it.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::{TlsMode, TlsOptions};
use crate::inbox::error::StoreError;

/// Returns a connector, or none if the connection must not be encrypted.
pub(super) fn connector(
    options: &TlsOptions,
    is_direct: bool,
) -> Result<Option<MakeRustlsConnect>, StoreError> {
    let mode = options.mode();
    let is_system = options.root.as_deref() == Some("system");
    if is_system && mode != TlsMode::VerifyFull {
        return Err(StoreError::unusable(
            "`sslrootcert=system` in the address of the database needs `sslmode=verify-full`",
        ));
    }
    if mode == TlsMode::VerifyCa && options.root.is_none() {
        // Anybody can get a certificate of a public authority for a name of theirs.
        return Err(StoreError::unusable(
            "`sslmode=verify-ca` in the address of the database needs `sslrootcert`: it checks no host name, so the \
             certificate of a public authority proves nothing. Name your authority, or use `sslmode=verify-full`",
        ));
    }
    if mode == TlsMode::Disable {
        return Ok(None);
    }
    // A program that installed no provider gets AWS-LC.
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
    let verifier = verifier(options, &provider)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(StoreError::unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => {
            let key =
                PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("sslkey", &error))?;
            config
                .with_client_auth_cert(certificates("sslcert", certificate)?, key)
                .map_err(StoreError::unusable)?
        }
        (None, None) => config.with_no_client_auth(),
        _ => {
            return Err(StoreError::unusable(
                "the address of the database needs both `sslcert` and `sslkey`, or neither",
            ));
        }
    };
    if is_direct {
        // Without it, the server refuses a connection that begins with TLS.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(Some(MakeRustlsConnect::new(config)))
}

fn verifier(options: &TlsOptions, provider: &Arc<CryptoProvider>) -> Result<Verifier, StoreError> {
    let mode = options.mode();
    let roots = match options.root.as_deref() {
        None if matches!(mode, TlsMode::Prefer | TlsMode::Require) => None,
        None | Some("system") => Some(rustls_native_certs::load_native_certs().certs),
        Some(file) => Some(certificates("sslrootcert", file)?),
    };
    let chain = match roots {
        Some(certificates) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates);
            let chain =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            let none =
                "there is no usable root certificate to check the database's certificate with";
            Some(chain.build().map_err(|_| StoreError::unusable(none))?)
        }
        None => None,
    };
    Ok(Verifier {
        chain,
        checks_name: mode == TlsMode::VerifyFull,
        algorithms: provider.signature_verification_algorithms,
    })
}

fn certificates(option: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = certificates.map_err(|error| unreadable(option, &error))?;
    if certificates.is_empty() {
        return Err(unreadable(option, &pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

fn unreadable(option: &str, error: &pem::Error) -> StoreError {
    let file = format!("the file that `{option}` of the address of the database names");
    StoreError::unusable(match error {
        pem::Error::Io(error) => format!("{file} cannot be read: {error}"),
        _ => format!("{file} cannot be read as PEM"),
    })
}

#[derive(Debug)]
struct Verifier {
    /// Checks the chain and the name. If it is `None`, any certificate is accepted.
    chain: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            chain.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        match verified {
            // The name is checked last, so the chain is good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
