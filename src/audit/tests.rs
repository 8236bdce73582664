use super::*;

const ALLOWED: Decided<'_> = Decided {
    approval: None,
    allowed: true,
    by: "default",
    rule: None,
    replaced: None,
};

const SUBJECT: Subject<'_> = Subject {
    call: CallId(17),
    caller: "tester",
    principal: "anybody",
    server: "notes",
    tool: "notes__add",
    arguments: r#"{"text":"hi"}"#,
};

/// A log of `calls` calls, two lines each, as one chain.
fn log(calls: u64) -> (Chain, Vec<String>) {
    let mut chain = Chain::new();
    let mut out = Vec::new();
    for call in 1..=calls {
        let mut subject = Vec::new();
        write_subject(
            &mut subject,
            &Subject {
                call: CallId(call),
                ..SUBJECT
            },
        );
        let mut bodies = Vec::new();
        write_decision(&mut bodies, 0, &subject, ALLOWED);
        let duration = Duration::from_millis(12);
        write_outcome(&mut bodies, 12, &subject, Outcome::Ok, duration);
        for body in bodies.split_inclusive(|byte| *byte == b'\n') {
            chain.seal(&mut out, body.strip_suffix(b"\n").expect("ended"));
        }
    }
    (chain, lines(&out))
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).expect("text");
    text.lines().map(str::to_owned).collect()
}

fn mark(chain: &mut Chain, mark: Mark<'_>) -> String {
    let (mut body, mut out) = (Vec::new(), Vec::new());
    write_mark(&mut body, 0, mark);
    chain.seal(&mut out, body.strip_suffix(b"\n").expect("ended"));
    lines(&out).remove(0)
}

fn verify_files(files: &[&[String]]) -> Result<Report, Fault> {
    let mut verifier = Verifier::new();
    for (i, file) in files.iter().enumerate() {
        if i > 0 {
            verifier.begin_file();
        }
        for line in *file {
            verifier.line(line.as_bytes(), true);
        }
    }
    verifier.finish()
}

/// The first fault: its line, and what it is.
fn fault_of(lines: &[String]) -> (u64, FaultKind) {
    let fault = verify_files(&[lines]).expect_err("broken");
    (fault.line, fault.kind)
}

#[test]
fn lines_say_what_they_are_to_say() {
    let mut subject = Vec::new();
    write_subject(&mut subject, &SUBJECT);
    let mut out = Vec::new();
    let denied = Decided {
        approval: None,
        allowed: false,
        by: "rule",
        rule: Some(3),
        ..ALLOWED
    };
    write_decision(&mut out, 0, &subject, denied);
    let refused = Outcome::Refused;
    write_outcome(
        &mut out,
        1_796_043_585_007,
        &subject,
        refused,
        Duration::ZERO,
    );
    write_outcome(
        &mut out,
        0,
        &subject,
        Outcome::Error(-32_602),
        Duration::MAX,
    );
    let common = r#""call":"17","caller":"tester","principal":"anybody","server":"notes","tool":"notes__add","arguments":"ae86ad6fa94db3d09aaadfb3ab0a4bf9e8fcd09ac2f4c84aea2b0dab8c0c8bcc""#;
    let digest = crate::crypto::hex(&sha256(SUBJECT.arguments.as_bytes()));
    let common = common.replace(
        "ae86ad6fa94db3d09aaadfb3ab0a4bf9e8fcd09ac2f4c84aea2b0dab8c0c8bcc",
        &digest,
    );
    let wanted = [
        format!(
            r#","time":"1970-01-01T00:00:00.000Z","event":"decision",{common},"decision":"deny","by":"rule","rule":3"#
        ),
        format!(
            r#","time":"2026-11-30T12:59:45.007Z","event":"call",{common},"outcome":"refused","durationMs":0"#
        ),
        format!(
            r#","time":"1970-01-01T00:00:00.000Z","event":"call",{common},"outcome":"error","code":-32602,"durationMs":{}"#,
            Duration::MAX.as_millis()
        ),
    ];
    assert_eq!(lines(&out), wanted);
    let mut out = Vec::new();
    let replaced = Decided {
        by: "hook",
        replaced: Some("{}"),
        ..ALLOWED
    };
    write_decision(&mut out, 0, &subject, replaced);
    let replaced = crate::crypto::hex(&sha256(b"{}"));
    let end = format!(r#","decision":"allow","by":"hook","replaced":"{replaced}""#);
    assert!(lines(&out)[0].ends_with(&end));
}

#[test]
fn a_person_can_check_a_line_by_hand() {
    let (_, lines) = log(1);
    let zeros = "0".repeat(64);
    assert!(lines[0].contains(&format!(r#","prev":"{zeros}","hash":""#)));
    let (body, hash) = lines[0].split_once(r#","hash":""#).expect("a hash");
    let hash = hash.strip_suffix("\"}").expect("the end");
    assert_eq!(hash, crate::crypto::hex(&sha256(body.as_bytes())));
    assert!(lines[1].contains(&format!(r#""prev":"{hash}""#)));
}

#[test]
fn the_longest_line_fits() {
    let long = "\u{1}".repeat(10 * TEXT_BYTES_MAX);
    let subject = Subject {
        call: CallId(u64::MAX),
        caller: &long,
        principal: &long,
        server: &long,
        tool: &long,
        arguments: &long,
    };
    let mut head = Vec::new();
    write_subject(&mut head, &subject);
    let mut body = Vec::new();
    let decided = Decided {
        approval: None,
        allowed: false,
        by: &long,
        rule: Some(usize::MAX),
        replaced: Some(&long),
    };
    write_decision(&mut body, i64::MAX, &head, decided);
    body.pop();
    let mut out = Vec::new();
    Chain {
        seq: u64::MAX - 1,
        last: [0; 32],
    }
    .seal(&mut out, &body);
    assert!(out.len() <= LINE_BYTES_MAX, "{}", out.len());
    assert!(Line::read(&out[..out.len() - 1]).expect("a line").sound);
    let umlauts = "ä".repeat(TEXT_BYTES_MAX);
    let mut cut = Vec::new();
    text(&mut cut, &format!("x{umlauts}"));
    let cut = String::from_utf8(cut).expect("cut between characters");
    assert!(cut.ends_with("ä…\"") && cut.len() <= TEXT_BYTES_MAX + 5);
}

#[test]
fn a_whole_log_is_whole() {
    let (chain, lines) = log(3);
    let report = verify_files(&[&lines]).expect("whole");
    assert_eq!((report.lines, report.first, report.last), (6, 1, 6));
    assert_eq!((report.hash, report.torn), (chain.last, 0));
    let empty = verify_files(&[&[]]).expect("nothing is whole");
    assert_eq!((empty.lines, empty.last), (0, 0));
}

/// Whatever is done to one line is found, and where.
#[test]
fn a_changed_line_is_found() {
    let (_, lines) = log(3);
    for at in 0..lines.len() {
        let changes: [fn(&str) -> String; 5] = [
            |line| line.replace("tester", "nobody"),
            |line| line.replace("1970", "1971"),
            |line| line.replacen('"', " \"", 1),
            |line| line.replace(r#""hash":""#, r#""x":1,"hash":""#),
            |line| line.replace(r#"{"seq":"#, r#"{"seq":1"#),
        ];
        for change in changes {
            let mut changed = lines.clone();
            changed[at] = change(&lines[at]);
            assert_ne!(changed[at], lines[at]);
            let number = u64::try_from(at).expect("small") + 1;
            assert_eq!(
                fault_of(&changed),
                (number, FaultKind::Changed),
                "{}",
                changed[at]
            );
        }
    }
}

/// One bit of one byte, anywhere: nothing in a line is not covered.
#[test]
fn no_byte_is_free() {
    let (_, lines) = log(2);
    for at in 0..lines[1].len() {
        let mut bytes = lines[1].clone().into_bytes();
        bytes[at] ^= 1;
        let mut verifier = Verifier::new();
        verifier.line(lines[0].as_bytes(), true);
        verifier.line(&bytes, true);
        verifier.line(lines[2].as_bytes(), true);
        let fault = verifier.finish().expect_err("found");
        assert_eq!(fault.line, 2, "byte {at}: {fault}");
    }
}

/// Somebody who knows how hashes are made.
#[test]
fn a_line_whose_hash_was_made_anew_is_found() {
    let (_, mut lines) = log(3);
    let mut forger = Chain {
        seq: 2,
        last: Line::read(lines[1].as_bytes()).expect("a line").hash,
    };
    let mut forged = Vec::new();
    forger.seal(&mut forged, br#","event":"call","outcome":"ok""#);
    let forged = String::from_utf8(forged)
        .expect("text")
        .trim_end()
        .to_owned();
    let mut inserted = lines.clone();
    inserted.insert(2, forged.clone());
    assert_eq!(fault_of(&inserted), (3, FaultKind::Inserted));
    lines[2] = forged;
    assert_eq!(fault_of(&lines), (3, FaultKind::Changed));
}

#[test]
fn missing_doubled_and_moved_lines_are_found() {
    let (_, lines) = log(3);
    let mut without = lines.clone();
    without.remove(2);
    assert_eq!(fault_of(&without), (3, FaultKind::Removed));
    let said = verify_files(&[&without]).expect_err("broken").to_string();
    assert_eq!(
        said,
        "line 3: removed: it has number 4; number 3 is missing before it"
    );
    without.remove(2);
    let said = verify_files(&[&without]).expect_err("broken").message;
    assert_eq!(
        said,
        "it has number 5; numbers 3 to 4 are missing before it"
    );
    assert_eq!(fault_of(&lines[1..]), (1, FaultKind::Removed), "the first");
    let mut doubled = lines.clone();
    doubled.insert(3, lines[2].clone());
    assert_eq!(fault_of(&doubled), (4, FaultKind::Inserted));
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    assert_eq!(fault_of(&swapped), (3, FaultKind::Reordered));
    let mut moved = lines.clone();
    let one = moved.remove(1);
    moved.push(one);
    assert_eq!(fault_of(&moved), (2, FaultKind::Reordered));
    let said = verify_files(&[&moved]).expect_err("broken").message;
    assert_eq!(said, "number 2 belongs here; it is line 6");
    let mut blank = lines;
    blank.insert(2, String::new());
    assert_eq!(fault_of(&blank), (3, FaultKind::NotALine));
}

#[test]
fn a_torn_line_is_a_fault_until_it_is_explained() {
    let (mut chain, mut lines) = log(2);
    let fragment = br#"{"seq":5,"time":"19"#;
    let mut verifier = Verifier::new();
    for line in &lines {
        verifier.line(line.as_bytes(), true);
    }
    verifier.line(fragment, false);
    let fault = verifier.finish().expect_err("torn");
    assert_eq!((fault.line, fault.kind), (5, FaultKind::Torn));
    let explained = mark(&mut chain, Mark::Torn { fragment });
    lines.push(String::from_utf8(fragment.to_vec()).expect("text"));
    assert_eq!(fault_of(&lines), (5, FaultKind::NotALine));
    lines.push(explained);
    let report = verify_files(&[&lines]).expect("explained");
    assert_eq!((report.torn, report.last), (1, 5));
    lines[4].push('x');
    assert_eq!(
        fault_of(&lines),
        (5, FaultKind::NotALine),
        "another fragment"
    );
}

#[test]
fn a_file_goes_on_where_another_one_ended() {
    let (mut chain, first) = log(2);
    let mut second = vec![mark(&mut chain, Mark::Continued)];
    second.push(mark(&mut chain, Mark::Lost { lines: 3 }));
    let report = verify_files(&[&first, &second]).expect("whole");
    assert_eq!((report.first, report.last, report.lines), (1, 6, 6));
    let alone = verify_files(&[&second]).expect("whole by itself");
    assert_eq!((alone.first, alone.last), (5, 6));
    assert_eq!(
        fault_of(&second[1..]),
        (1, FaultKind::Removed),
        "its head is gone"
    );
    let fault = verify_files(&[&first[..3], &second]).expect_err("the end of the first is gone");
    assert_eq!(
        (fault.file, fault.line, fault.kind),
        (1, 1, FaultKind::Removed)
    );
    let fault = verify_files(&[&first, &first]).expect_err("a new chain");
    assert_eq!((fault.file, fault.line), (1, 1));
}

#[test]
fn a_noted_hash_must_still_be_there() {
    let (_, lines) = log(2);
    let hash = |line: &str| line[line.len() - 66..line.len() - 2].to_owned();
    let look = |lines: &[String], hash: &str| {
        let mut verifier = Verifier::new().look_for(hash).expect("a hash");
        for line in lines {
            verifier.line(line.as_bytes(), true);
        }
        verifier.finish().expect("whole").found
    };
    assert_eq!(look(&lines, &hash(&lines[3])), Some(true));
    assert_eq!(look(&lines[..3], &hash(&lines[3])), Some(false), "cut off");
    assert!(Verifier::new().look_for("abc").is_none());
    assert!(Verifier::new().look_for(&"G".repeat(64)).is_none());
}

#[test]
fn a_chain_is_found_again_at_the_end_of_a_file() {
    let (chain, lines) = log(2);
    let whole = lines.join("\n") + "\n";
    let tail = Chain::resume(whole.as_bytes(), true).expect("ours");
    assert_eq!(tail.chain, chain);
    assert!(tail.fragment.is_empty() && !tail.lacks_line_feed);
    // Only the end of it is read.
    let tail = Chain::resume(&whole.as_bytes()[300..], false).expect("ours");
    assert_eq!(tail.chain, chain);
    let empty = Chain::resume(b"", true).expect("nothing yet");
    assert_eq!(empty.chain, Chain::new());
    // At every byte where it may be cut.
    let before = whole.len() - lines[3].len() - 1;
    let third = Line::read(lines[2].as_bytes()).expect("a line");
    for cut in before..whole.len() {
        let tail = Chain::resume(&whole.as_bytes()[..cut], true).expect("ours");
        if cut == whole.len() - 1 {
            assert!(tail.lacks_line_feed && tail.chain == chain && tail.fragment.is_empty());
            continue;
        }
        assert_eq!(tail.chain, third.chain().expect("sound"), "{cut}");
        assert_eq!(tail.fragment, whole.as_bytes()[before..cut]);
        assert_eq!(tail.lacks_line_feed, cut > before);
    }
    // The writer was stopped once more, before it could say what the first half line is.
    let feed = format!("{}{{\"seq\":\n", &whole[..before]);
    let tail = Chain::resume(feed.as_bytes(), true).expect("ours");
    assert_eq!(tail.chain, third.chain().expect("sound"));
    assert_eq!(
        (&*tail.fragment, tail.lacks_line_feed),
        (&b"{\"seq\":"[..], false)
    );
}

#[test]
fn other_files_are_not_continued() {
    let (_, lines) = log(1);
    let changed = lines[1].replace("tester", "nobody");
    for end in ["hello\nhello\n", "{}\n\n", "\n\n", &format!("{changed}\n")] {
        let read = Chain::resume(end.as_bytes(), true);
        assert_eq!(read, Err(TailError::NotOurs), "{end}");
    }
    let flood = vec![b'x'; TAIL_BYTES];
    assert_eq!(Chain::resume(&flood, false), Err(TailError::NotOurs));
    let torn = Chain::resume(b"{\"seq\":1", true).expect("a first line that was cut off");
    assert_eq!(torn.chain, Chain::new());
    assert_eq!(torn.fragment, b"{\"seq\":1");
}
