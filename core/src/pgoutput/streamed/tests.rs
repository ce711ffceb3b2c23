//! Streamed transactions, as messages of a server.

use super::*;

/// A folder that is removed, and the transactions in it.
struct Kept(Streams);

impl Kept {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("penstock-streamed-{name}-{}", std::process::id()));
        Self(Streams::new(folder))
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.0.folder).map_or(0, Iterator::count)
    }

    /// What holds, in its order. Each message came with others up to a `None`.
    fn given(&mut self, messages: &[Option<Vec<u8>>]) -> Failing<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        for together in messages.split(Option::is_none) {
            let mut arrivals = Arrivals::default();
            let mut frames = Vec::new();
            for message in together.iter().flatten() {
                append(&mut frames, 7, Beside::default(), message[0], &[&message[1..]]);
            }
            arrivals.feed(&frames)?;
            let (batch, mut at) = (arrivals.take(), 0);
            while let Some(part) = self.0.next(&batch, &mut at)? {
                let part = match part {
                    Part::Whole => batch.chosen(&(0..batch.count()).collect::<Vec<_>>()),
                    Part::Messages(part) => part,
                };
                found.extend(part.messages().map(|(_, bytes)| bytes.to_owned()));
            }
        }
        Ok(found)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.clear().unwrap();
    }
}

fn message(kind: u8, ids: &[u32], rest: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![kind];
    ids.iter().for_each(|id| bytes.extend_from_slice(&id.to_be_bytes()));
    bytes.extend_from_slice(rest);
    Some(bytes)
}

fn start(xid: u32, is_first: u8) -> Option<Vec<u8>> {
    message(b'S', &[xid], &[is_first])
}

const STOP: u8 = b'E';

/// A row of the relation 1 by a subtransaction.
fn row(subxid: u32, value: u8) -> Option<Vec<u8>> {
    message(b'I', &[subxid, 1], &[value])
}

fn commit(xid: u32) -> Option<Vec<u8>> {
    let place = [&[3][..], &5u64.to_be_bytes(), &6u64.to_be_bytes(), &9u64.to_be_bytes()].concat();
    message(b'c', &[xid], &place)
}

/// As version 1 sends them.
fn whole(xid: u32, inside: &[Option<Vec<u8>>]) -> Vec<Vec<u8>> {
    let begin = [&b"B"[..], &5u64.to_be_bytes(), &9u64.to_be_bytes(), &xid.to_be_bytes()].concat();
    let commit = [&[b'C', 3][..], &5u64.to_be_bytes(), &6u64.to_be_bytes(), &9u64.to_be_bytes()].concat();
    [vec![begin], inside.iter().flatten().cloned().collect(), vec![commit]].concat()
}

fn stop() -> Option<Vec<u8>> {
    Some(vec![STOP])
}

fn plain(value: u8) -> Option<Vec<u8>> {
    message(b'I', &[1], &[value])
}

#[test]
fn a_transaction_comes_at_its_commit_however_it_was_cut() {
    let sent = [
        start(9, 1),
        row(9, 1),
        row(10, 2),
        stop(),
        plain(50),
        start(20, 1),
        row(20, 3),
        stop(),
        start(9, 0),
        row(9, 4),
        stop(),
        commit(9),
        plain(51),
        commit(20),
    ];
    let wanted = [
        vec![plain(50).unwrap()],
        whole(9, &[plain(1), plain(2), plain(4)]),
        vec![plain(51).unwrap()],
        whole(20, &[plain(3)]),
    ]
    .concat();
    for cut in 0..=sent.len() {
        let mut kept = Kept::new("cut");
        let cut = [&sent[..cut], &[None], &sent[cut..]].concat();
        assert_eq!(kept.given(&cut).unwrap(), wanted);
        assert_eq!((kept.0.kept(), kept.files()), ((0, 0), 0));
    }
}

#[test]
fn what_is_rolled_back_is_not_given() {
    let mut kept = Kept::new("rolled-back");
    let abort = |subxid| message(b'A', &[9, subxid], &[]);
    // 12 is inside of 11, which is inside of 10. 13 comes after it. Ids may begin again: 3 is after 9.
    let sent = [
        start(9, 1),
        row(9, 1),
        row(10, 2),
        row(11, 3),
        row(12, 4),
        stop(),
        start(9, 0),
        row(11, 5),
        row(12, 6),
        stop(),
        abort(12),
        abort(11),
        start(9, 0),
        row(10, 7),
        row(13, 8),
        stop(),
        abort(13),
        start(9, 0),
        row(10, 9),
        row(9, 10),
        row(14, 11),
        stop(),
        abort(14),
        commit(9),
    ];
    let wanted = whole(9, &[plain(1), plain(2), plain(7), plain(9), plain(10)]);
    assert_eq!(kept.given(&sent).unwrap(), wanted);
    // All of it, and then some rows: nothing of the first ones is left.
    let (top, sub) = (u32::MAX - 1, 3);
    let sent = [
        start(top, 1),
        row(sub, 1),
        row(sub, 2),
        stop(),
        message(b'A', &[top, sub], &[]),
        start(top, 0),
        row(sub + 1, 3),
        stop(),
        commit(top),
    ];
    assert_eq!(kept.given(&sent).unwrap(), whole(top, &[plain(3)]));
    let sent = [start(9, 1), row(10, 1), stop(), abort(10), commit(9)];
    assert!(kept.given(&sent).unwrap().is_empty());
    let sent = [start(9, 1), row(9, 1), stop(), abort(9), abort(9)];
    assert!(kept.given(&sent).unwrap().is_empty());
    assert_eq!((kept.0.kept(), kept.files()), ((0, 0), 0));
}

#[test]
fn a_message_of_a_program_does_not_hide_what_is_rolled_back() {
    let mut kept = Kept::new("programs");
    let said = message(b'M', &[9], b"\x01........p\0\0\0\0\0");
    let sent = [
        start(9, 1),
        row(10, 1),
        said.clone(),
        row(10, 2),
        stop(),
        message(b'A', &[9, 10], &[]),
        start(9, 0),
        row(9, 3),
        stop(),
        commit(9),
    ];
    assert_eq!(kept.given(&sent).unwrap(), whole(9, &[plain(3)]));
    let sent = [start(9, 1), said, message(b'O', &[], b"........o\0"), stop(), commit(9)];
    assert_eq!(kept.given(&sent).unwrap(), whole(9, &[]));
}

#[test]
fn a_description_that_came_later_holds_behind_the_transaction() {
    let describes = |subxid: &[u32], name: &[u8]| message(b'R', &[subxid, &[1]].concat(), name);
    let (old, new) = (describes(&[], b"old"), describes(&[], b"new"));
    let mut kept = Kept::new("descriptions");
    let sent = [
        describes(&[], b"new"),
        start(9, 1),
        describes(&[9], b"old"),
        row(9, 1),
        stop(),
        describes(&[], b"new"),
        commit(9),
        plain(2),
    ];
    let wanted = [
        vec![new.clone().unwrap(), new.clone().unwrap()],
        whole(9, &[old.clone(), plain(1)]),
        vec![new.clone().unwrap(), plain(2).unwrap()],
    ];
    assert_eq!(kept.given(&sent).unwrap(), wanted.concat());
    // Inside of the transaction it came last: it holds.
    let sent = [new.clone(), start(9, 1), describes(&[9], b"old"), row(9, 1), stop(), commit(9), plain(2)];
    let wanted = [vec![new.clone().unwrap()], whole(9, &[old.clone(), plain(1)]), vec![plain(2).unwrap()]];
    assert_eq!(kept.given(&sent).unwrap(), wanted.concat());
    // Two transactions, and the one whose description is older commits last.
    let sent = [
        start(9, 1),
        describes(&[9], b"old"),
        row(9, 1),
        stop(),
        start(20, 1),
        describes(&[20], b"new"),
        row(20, 2),
        stop(),
        commit(20),
        commit(9),
    ];
    let wanted = [whole(20, &[new.clone(), plain(2)]), whole(9, &[old, plain(1)]), vec![new.unwrap()]];
    assert_eq!(kept.given(&sent).unwrap(), wanted.concat());
}

#[test]
fn what_is_none_of_this_protocol_is_an_error() {
    let broken: [&[Option<Vec<u8>>]; 10] = [
        &[stop()],
        &[start(9, 0)],
        &[start(9, 1), start(10, 1)],
        &[start(9, 1), commit(9)],
        &[commit(9)],
        &[start(9, 1), message(b'I', &[], b"\0\0")],
        &[start(9, 1), message(b'B', &[9], b"")],
        &[message(b'S', &[9], b"")],
        &[message(b'A', &[9], b"")],
        &[message(b'A', &[9, 9], b"more")],
    ];
    for sent in broken {
        let failed = Kept::new("broken").given(sent);
        assert!(matches!(failed, Err(Failed::Decode(_))), "{sent:?}");
    }
}
