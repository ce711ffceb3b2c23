//! The COMMIT of a transaction that Penstock wrote into the relay log instead of what the source sent.
//!
//! Only XA transactions are rewritten (`frame/branch.rs`). A comment in the COMMIT marks them, so that a
//! reader of the log knows that these are not the source's bytes.

/// The beginning of such a COMMIT.
const REWRITTEN: &[u8] = b"COMMIT /* XA ";

pub fn is_rewritten(sql: &[u8]) -> bool {
    sql.starts_with(REWRITTEN)
}

/// The statement that ends a rewritten transaction. `what` is the XA statement it stands for: PREPARE or
/// COMMIT.
pub fn rewritten(what: &str, xid: &str) -> String {
    let known = xid.replace("*/", "* /");
    format!("COMMIT /* XA {what} {known} */")
}
