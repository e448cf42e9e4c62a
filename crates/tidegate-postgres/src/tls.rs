//! TLS to the server, by rustls.
//!
//! Modes mean the same as in libpq: `prefer` and `require` encrypt and do not check the certificate, because
//! most servers have one that they signed themselves; `verify-ca` checks it, `verify-full` checks the name
//! of the host as well.

use crate::open_error::PostgresOpenError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The use of TLS, as libpq names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// None.
    Disable,
    /// If the server offers it.
    Prefer,
    /// Always, with any certificate.
    Require,
    /// Always, with a certificate of a known authority.
    VerifyCa,
    /// The same, for the name of the host.
    VerifyFull,
}

impl TlsMode {
    /// The mode of this name.
    pub(crate) fn find_named(name: &str) -> Option<Self> {
        Some(match name {
            "disable" => TlsMode::Disable,
            "prefer" => TlsMode::Prefer,
            "require" => TlsMode::Require,
            "verify-ca" => TlsMode::VerifyCa,
            "verify-full" => TlsMode::VerifyFull,
            _ => return None,
        })
    }
}

/// Makes a connector for this mode that checks certificates by those in the file, or by those of the
/// operating system.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn make_tls(
    mode: TlsMode,
    roots: Option<&Path>,
) -> Result<MakeRustlsConnect, PostgresOpenError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // As in libpq: a certificate that was named is there to be checked.
    let mode = match mode {
        TlsMode::Require if roots.is_some() => TlsMode::VerifyCa,
        mode => mode,
    };
    let verifier: Arc<dyn ServerCertVerifier> = match mode {
        TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => {
            Arc::new(AnyCertificate(provider.clone()))
        }
        TlsMode::VerifyCa => Arc::new(AnyName(make_verifier(&provider, roots)?)),
        TlsMode::VerifyFull => make_verifier(&provider, roots)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| tls_failure(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn make_verifier(
    provider: &Arc<CryptoProvider>,
    roots: Option<&Path>,
) -> Result<Arc<dyn ServerCertVerifier>, PostgresOpenError> {
    let Some(file) = roots else {
        let verifier = Verifier::new(provider.clone());
        return Ok(Arc::new(verifier.map_err(|error| tls_failure(error.to_string()))?));
    };
    let failed = |error: &dyn std::fmt::Display| {
        tls_failure(format!("sslrootcert {}: {error}", file.display()))
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))? {
        let certificate = certificate.map_err(|error| failed(&error))?;
        store.add(certificate).map_err(|error| failed(&error))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone());
    Ok(verifier.build().map_err(|error| failed(&error))?)
}

fn tls_failure(reason: String) -> PostgresOpenError {
    PostgresOpenError::InvalidUrl { reason }
}

/// Takes any certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes certificates of known authorities for any name.
#[derive(Debug)]
struct AnyName(Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let verified = self.0.verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
