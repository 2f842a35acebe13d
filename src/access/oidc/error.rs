//! Reasons for refusing a token, with messages for its sender, and errors of the issuer, with messages for the log. Messages to the
//! sender contain no address and no key.

use std::path::PathBuf;

use pool::Span;

/// Accepted signature algorithms. Algorithms with a shared secret (HS*) and unsigned tokens are never accepted.
const ACCEPTED: &str = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA";

/// The reason for refusing a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    #[error("this token has {bytes} bytes; allowed: up to {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error(
        "this token cannot be read: its header is not JSON, or its signature algorithm is not accepted; accepted: {ACCEPTED}"
    )]
    Unreadable,
    #[error("this token is signed with {algorithm}, which is not accepted; accepted: {ACCEPTED}")]
    Algorithm { algorithm: String },
    #[error("this token is of the kind `{kind}`; send an access token or an ID token")]
    Kind { kind: String },
    #[error("this token names no key, and its issuer has several")]
    NoKeyNamed,
    #[error(
        "this token is signed with a key that its issuer does not publish; get a new token, or try again in {retry}"
    )]
    UnknownKey { retry: Span },
    #[error("this token is signed with {algorithm}, which does not match the key that it names")]
    KeyMismatch { algorithm: String },
    #[error("the signature of this token is wrong")]
    Signature,
    #[error("the claim `{claim}` of this token {problem}")]
    Claim {
        claim: &'static str,
        problem: &'static str,
    },
    #[error("this token is from another issuer, which this pool does not trust")]
    Issuer,
    #[error("this token is for another audience; request one for this pool from its issuer")]
    Audience,
    #[error("this token expired {ago} ago; get a new one")]
    Expired { ago: Span },
    #[error("this token is not valid before {wait} from now")]
    NotYet { wait: Span },
    #[error(
        "this token was issued {ahead} in the future; the clocks of its issuer and of this pool differ"
    )]
    FromFuture { ahead: Span },
    #[error(
        "{name} is in no group that may use this pool; ask its administrators to add the group to auth.oidc.groups"
    )]
    NoGroup { name: String },
    #[error("the keys of the issuer of this token are not known now; try again in {retry}")]
    Unavailable { retry: Span },
}

/// Errors of the issuer, or of the connection to it.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    #[error("auth.oidc.issuer {address}: {why}")]
    Address { address: String, why: String },
    #[error("auth.oidc.ca_file {} cannot be used: {why}", path.display())]
    Authorities { path: PathBuf, why: String },
    #[error("cannot create a client for the issuer: {why}")]
    Client { why: String },
    #[error("{address} cannot be reached: {why}")]
    Unreachable { address: String, why: String },
    #[error("{address} responds with status {status}; redirects are not followed")]
    Status { address: String, status: u16 },
    #[error("{address} responds with more than {limit} bytes")]
    TooLarge { address: String, limit: usize },
    #[error("the response of {address} does not follow the specification: {why}")]
    Shape { address: String, why: String },
    #[error(
        "{address} is the document of the issuer `{found_issuer}`; auth.oidc.issuer must be the same text"
    )]
    OtherIssuer {
        address: String,
        found_issuer: String,
    },
    #[error("{name} of the issuer, {address}, is not trusted: {why}")]
    NamedAddress {
        name: &'static str,
        address: String,
        why: String,
    },
    #[error("{address} has no {name}, so browsers cannot sign in at this issuer")]
    NoBrowsers { address: String, name: &'static str },
    #[error("{address} has no key that can verify signatures")]
    NoKeys { address: String },
}

/// The reason that a browser could not sign in.
#[derive(Debug, thiserror::Error)]
pub enum SignOnError {
    #[error(
        "this sign-in was not started in this browser and by this process, or more than 10 min ago; start it again"
    )]
    Unknown,
    #[error("the issuer cannot be used to sign in: {why}")]
    Unavailable { why: String },
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error("the issuer did not give a token for the code (status {status}): {error}")]
    Refused { status: u16, error: String },
    #[error("the ID token was made for another sign-in, or for another client")]
    OtherSignIn,
    #[error(transparent)]
    Token(#[from] OidcError),
    #[error("auth.oidc.browser.client_secret_file {} cannot be used: {why}", path.display())]
    Secret { path: PathBuf, why: String },
    #[error("the system has no random numbers")]
    NoRandom,
}
