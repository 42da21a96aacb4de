use super::*;

/// What a guest says, and what time the answer has.
fn say(c: &mut Calendar, op: u32, time: u64) -> u64 {
    let answer = c.receive(Message { op, seq: 77, time }).unwrap().unwrap();
    assert_eq!((answer.op, answer.seq), (op::ACK, 77));
    answer.time
}

/// The guest answers a message of ours.
fn acked(c: &mut Calendar, m: Message) {
    assert!(c.is_unanswered());
    assert_eq!(c.receive(Message { op: op::ACK, seq: m.seq, time: 0 }), Ok(None));
}

fn waiting_at(request: u64) -> Calendar {
    let mut c = Calendar::new(1_000);
    say(&mut c, op::START, u64::MAX);
    say(&mut c, op::REQUEST, request);
    say(&mut c, op::WAIT, u64::MAX);
    c
}

#[test]
fn a_message_is_sixteen_bytes_and_comes_back() {
    let m = Message { op: op::RUN, seq: 0x0102_0304, time: 0x1122_3344_5566_7788 };
    assert_eq!(Message::parse(&m.bytes()), m);
    assert_eq!(m.bytes()[0], 6);
}

#[test]
fn the_first_event_is_next_and_a_drives_wins_a_tie() {
    let c = waiting_at(500);
    assert_eq!(c.turn(None), Turn::Guest);
    assert_eq!(c.turn(Some(Time(501))), Turn::Guest);
    assert_eq!(c.turn(Some(Time(500))), Turn::Drive(Time(500)));
    assert_eq!(waiting_at(i64::MAX as u64).turn(None), Turn::Never);
    assert_eq!(waiting_at(i64::MAX as u64).turn(Some(Time(9))), Turn::Drive(Time(9)));
}

#[test]
fn an_interrupt_brings_the_guests_turn_forward() {
    let mut c = waiting_at(500);
    c.advance(Time(300));
    assert_eq!(say(&mut c, op::GET, 0), 300);
    say(&mut c, op::REQUEST, 300);
    assert_eq!(c.turn(Some(Time(400))), Turn::Guest);
    let free = c.free_until(Some(Time(400)));
    assert_eq!((free.op, free.time), (op::FREE_UNTIL, 400));
    acked(&mut c, free);
    let run = c.run(Some(Time(400)));
    assert_eq!((run.op, run.time), (op::RUN, 300));
    acked(&mut c, run);
    assert_eq!((c.turn(Some(Time(400))), c.granted()), (Turn::Listen, Some(Time(400))));
}

#[test]
fn a_guest_that_runs_freely_tells_the_time_and_may_not_pass_what_it_was_granted() {
    let mut c = waiting_at(500);
    let run = c.run(Some(Time(900)));
    acked(&mut c, run);
    say(&mut c, op::UPDATE, 899);
    assert_eq!(c.now(), Time(899));
    assert!(c.receive(Message { op: op::UPDATE, seq: 1, time: 901 }).is_err());
    assert!(c.receive(Message { op: op::UPDATE, seq: 1, time: 898 }).is_err());
}

#[test]
fn the_date_goes_with_the_time() {
    let mut c = waiting_at(500);
    c.advance(Time(20));
    assert_eq!(say(&mut c, op::GET_TOD, 0), 1_020);
}

#[test]
fn what_no_guest_may_say_is_an_error_and_no_panic() {
    let fresh = || Calendar::new(0);
    for op in [op::REQUEST, op::WAIT, op::GET, op::UPDATE, op::ACK, op::RUN, 4711] {
        let refused = fresh().receive(Message { op, seq: 3, time: 0 });
        assert!(refused.is_err(), "operation {op} before START");
    }
    for op in [op::START, op::WAIT, op::UPDATE, op::RUN, op::FREE_UNTIL, 4711] {
        let refused = waiting_at(5).receive(Message { op, seq: 3, time: 9 });
        assert!(refused.is_err(), "operation {op} while it waits");
    }
}
