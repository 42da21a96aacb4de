//! What claims say, in Korean.
//!
//! A claim's words are those of the claims file, which is English; here each is a sentence with
//! parts (`{0}`: an era, a number, a mode), found by its English form. A test in `tests/page.rs`
//! sees to it that every claim of the file has one.

use wp_base::phrase;

use super::{Lang, Text, texts};

texts! {
    C01: "{0} {1}: data sectors dispatched by the fsync task", "{0} {1}: fsync 태스크가 디스패치한 데이터 섹터 수";
    C02: "{0} {1}: data sectors by the fsync task", "{0} {1}: fsync 태스크가 기록한 데이터 섹터 수";
    C03: "{0} {1}: journal sectors before the commit record", "{0} {1}: 커밋 블록 앞의 저널 섹터 수";
    C04: "{0} {1}: commit record", "{0} {1}: 커밋 블록의 섹터 수";
    C05: "{0} {1}: data sectors of the other nine files, by the flusher", "{0} {1}: 플러셔가 기록한 나머지 아홉 파일의 데이터 섹터 수";
    C06: "{0} {1}: first of them", "{0} {1}: 그 가운데 첫 번째의 시각";
    C07: "{0} {1}: journal sectors of the second transaction", "{0} {1}: 두 번째 트랜잭션의 저널 섹터 수";
    C08: "{0} {1}: checkpointed sectors", "{0} {1}: 체크포인트된 섹터 수";
    C09: "{0} {1}: data sectors of the other files by jbd2 inside the fsync", "{0} {1}: fsync 안에서 jbd2가 기록한 다른 파일의 데이터 섹터 수";
    C10: "{0} {1}: journal sectors", "{0} {1}: 저널 섹터 수";
    C11: "{0} {1}: data sectors by the flusher about 30 s later", "{0} {1}: 약 30초 뒤 플러셔가 기록한 데이터 섹터 수";
    C12: "{0} {1}: files whose data is on disk when fsync returns", "{0} {1}: fsync가 반환될 때 데이터가 디스크에 있는 파일 수";
    C13: "{0} {1}: data blocks written by the fsync, N={2}", "{0} {1}: fsync가 기록한 데이터 블록 수, N={2}";
    C14: "{0} {1}: latency grows with N at every step (1 = yes)", "{0} {1}: N이 커질 때마다 지연 시간이 늘어남(1 = 예)";
    C15: "{0} {1}: metadata blocks in the journal, N=1000 over N=100", "{0} {1}: 저널의 메타데이터 블록 수, N=1000 / N=100";
    C16: "{0}: ordered data not complete when the commit record is dispatched", "{0}: 커밋 블록이 디스패치될 때 완료되지 않은 순차 모드 데이터";
    C17: "commit records are dispatched from the completion context of the flush in every era (1 = yes)", "모든 시기에서 커밋 블록은 플러시의 완료 문맥에서 디스패치됨(1 = 예)";
    C18: "GDT, group-1 bitmap, inode table, journal start at the sectors of the paper's disk (29 GiB, partition at 187035648): how many of 4", "GDT, 1번 그룹 비트맵, 아이노드 테이블, 저널 시작이 논문 디스크의 섹터와 같음(29 GiB, 파티션 187035648): 4개 중 개수";
    C19: "{0} {1}: largest latency increase over N=1", "{0} {1}: N=1 대비 지연 시간의 최대 증가율";
    C20: "{0} {1}: smallest latency increase over N=1 (N=10)", "{0} {1}: N=1 대비 지연 시간의 최소 증가율(N=10)";
    C21: "non-allocating N=10: 3.4 over 3.8, first dispatch to commit dispatch", "비할당 쓰기 N=10: 첫 디스패치부터 커밋 디스패치까지, 3.4 / 3.8";
    C22: "allocating: increase from N=100 to 1000 over increase from 1 to 100 (paper: larger)", "할당 쓰기: N=100→1000의 증가폭 / 1→100의 증가폭(논문: 더 큼)";
    C23: "{0} data=ordered: a file shows blocks that were never its own after some crash (1 = found)", "{0} data=ordered: 어떤 전원 장애 뒤 파일이 자기 것이 아니었던 블록을 보임(1 = 발견)";
    C24: "{0}: one journal file, fsync per transaction: inconsistent after some crash", "{0}: 저널 파일 하나, 트랜잭션마다 fsync: 어떤 전원 장애 뒤 일관성이 깨짐";
    C25: "{0}: several journal files, not every one fsynced: inconsistent after some crash", "{0}: 저널 파일 여럿, 일부만 fsync: 어떤 전원 장애 뒤 일관성이 깨짐";
    C26: "{0}: extension inside a block whose size survives without its data after some crash", "{0}: 블록 안의 확장이 어떤 전원 장애 뒤 데이터 없이 크기만 남음";
    C27: "stage {0} of a 4 KiB random write + fsync with PLP", "PLP 있는 4 KiB 임의 쓰기 + fsync의 {0} 단계";
    C28: "posix without PLP: failures found (1 = yes)", "PLP 없는 posix: 실패가 발견됨(1 = 예)";
    C29: "strict_fixed: failures", "strict_fixed: 실패 횟수";
    C30: "OPRW-posix: failures", "OPRW-posix: 실패 횟수";
    C31: "a region of buffer size x dies x internal-flush period gives 2.1-4.3 % for posix (1 = yes)", "버퍼 크기 × 다이 수 × 내부 플러시 주기의 어느 영역에서 posix 실패율이 2.1~4.3 %임(1 = 예)";
    C32: "posix with PLP: failures", "PLP 있는 posix: 실패 횟수";
    C33: "posix without PLP, strictly serial programming: failures", "PLP 없는 posix, 완전히 직렬인 낸드 쓰기: 실패 횟수";
    C34: "no PLP: strict_fixed over posix", "PLP 없음: strict_fixed / posix";
    C35: "no PLP: OPRW over posix", "PLP 없음: OPRW / posix";
    C36: "PLP, nobarrier: smallest gain of OPRW over the request sizes", "PLP, nobarrier: 요청 크기에 대한 OPRW의 최소 이득";
    C37: "PLP, nobarrier: largest gain", "PLP, nobarrier: 최대 이득";
    C38: "PLP: varmail, one thread", "PLP: varmail, 단일 스레드";
    C39: "PLP: OLTP-insert, one thread", "PLP: OLTP-Insert, 단일 스레드";
    C40: "varmail gains more than OLTP-insert (1 = yes)", "varmail의 이득이 OLTP-Insert보다 큼(1 = 예)";
    C41: "varmail: the gain with most threads is below half of the gain with one (1 = yes)", "varmail: 스레드가 가장 많을 때의 이득이 하나일 때의 절반보다 작음(1 = 예)";
    C42: "roll-forward of {0} nodes: OPRW over F2FS, extra time", "노드 {0}개의 전방향 복구: F2FS 대비 OPRW의 추가 시간";
    C43: "device commands of the check besides one zone report", "존 보고 한 번 외에 검사가 장치에 보내는 명령 수";
    C44: "{0}: share of {1} in the conflicts", "{0}: 저널 충돌에서 {1}의 비율";
    C45: "conflicts per operation, varmail (the paper prints 44.5 %; its own numbers give 46.1 %)", "작업당 저널 충돌, varmail(논문은 44.5 %라 적었으나 논문의 수치로 계산하면 46.1 %)";
    C46: "conflicts per operation, without create and delete", "작업당 저널 충돌, 생성·삭제 없음";
    C47: "the two above, divided", "위 두 값의 비";
    C48: "ops/s without create and delete over varmail", "초당 작업 수, 생성·삭제 없음 / varmail";
    C49: "group-descriptor conflicts, table 3 over table 2", "그룹 디스크립터 충돌, 표 3 / 표 2";
    C50: "data-bitmap conflicts, table 3 over table 2", "데이터 비트맵 충돌, 표 3 / 표 2";
    C51: "inode-table conflicts, table 3 over table 2", "아이노드 테이블 충돌, 표 3 / 표 2";
    C52: "(max-min)/mean of the per-thread totals", "스레드별 합계의 (최대−최소)/평균";
    C53: "varmail: BFS-DR with 8 threads over 2 threads", "varmail: BFS-DR, 스레드 8개 / 2개";
    C54: "modified: BFS-DR with 8 threads over 2 threads, over the same on varmail (paper: better)", "수정본: BFS-DR의 스레드 8개 / 2개를 varmail의 같은 값으로 나눈 것(논문: 더 좋음)";
    C55: "{0}, 8 threads: F2FS above EXT4-DR and BFS-DR (1 = yes)", "{0}, 스레드 8개: F2FS가 EXT4-DR과 BFS-DR보다 높음(1 = 예)";
    C56: "{0}, modified over varmail, 8 threads (paper: rises)", "{0}, 수정본 / varmail, 스레드 8개(논문: 증가)";
    C57: "sequential: sizes 4 KiB-512 KiB at which F2FS is first (of 8)", "순차 쓰기: 4 KiB~512 KiB에서 F2FS가 1위인 크기의 수(8개 중)";
    C58: "sequential: sizes 1-4 MiB at which EXT4 is above F2FS (of 3)", "순차 쓰기: 1~4 MiB에서 EXT4가 F2FS보다 높은 크기의 수(3개 중)";
    C59: "sequential: {0} over F2FS, mean over sizes", "순차 쓰기: {0} / F2FS, 크기에 대한 평균";
    C60: "sequential: BTRFS at 1 MiB", "순차 쓰기: 1 MiB에서의 BTRFS";
    C61: "random: sizes at which F2FS is first (of 11)", "임의 쓰기: F2FS가 1위인 크기의 수(11개 중)";
    C62: "random: {0} over F2FS, mean", "임의 쓰기: {0} / F2FS, 평균";
    C63: "EXT4: share of blocks that move on direct overwrite", "EXT4: direct 덮어쓰기에서 주소가 바뀌는 블록의 비율";
    C64: "{0}: share of blocks that move", "{0}: 주소가 바뀌는 블록의 비율";
    C65: "EXT4: journal blocks for a direct overwrite that does not grow the file", "EXT4: 파일을 늘리지 않는 direct 덮어쓰기의 저널 블록 수";
    C66: "NILFS2: direct write goes through the page cache and the user is told (1 = yes)", "NILFS2: direct 쓰기가 페이지 캐시를 거치며 사용자에게 알림(1 = 예)";
    C67: "valid flash pages after 2000 x 4 KiB create and delete, plain discard", "4 KiB 파일 2000개 생성·삭제 뒤 유효한 플래시 페이지, discard만";
    C68: "the same with inode-block trim", "같은 조건에서 아이노드 블록까지 trim";
    C69: "the two above", "위 두 값의 비율";
    C70: "flash blocks more that hold no valid page", "유효 페이지가 없는 플래시 블록의 증가분";
    C71: "every second file deleted: inode-table blocks trimmed", "두 개마다 하나 삭제: trim된 아이노드 테이블 블록 수";
    C72: "15 of each 16 deleted: inode-table blocks trimmed", "16개 중 15개 삭제: trim된 아이노드 테이블 블록 수";
}

/// All sentences; `TEXTS` is there for tests only.
const ALL: [Text; 72] = [
    C01, C02, C03, C04, C05, C06, C07, C08, C09, C10, C11, C12, C13, C14, C15, C16, C17, C18, C19,
    C20, C21, C22, C23, C24, C25, C26, C27, C28, C29, C30, C31, C32, C33, C34, C35, C36, C37, C38,
    C39, C40, C41, C42, C43, C44, C45, C46, C47, C48, C49, C50, C51, C52, C53, C54, C55, C56, C57,
    C58, C59, C60, C61, C62, C63, C64, C65, C66, C67, C68, C69, C70, C71, C72,
];

/// What a claim says, in a language. `None`: there is no sentence for it in that language.
pub fn claim(what: &str, lang: Lang) -> Option<String> {
    if lang == Lang::En {
        return Some(what.to_owned());
    }
    let (n, parts) = phrase::find(ALL.iter().map(|t| t.of(Lang::En)), what)?;
    let parts: Vec<&str> = parts.into_iter().map(part).collect();
    Some(ALL[n].with(lang, &parts))
}

/// A part of a sentence in Korean.
fn part(english: &str) -> &str {
    match english {
        "allocating" => "할당 쓰기",
        "non-allocating" => "비할당 쓰기",
        "table2" => "표 2",
        "table3" => "표 3",
        "modified" => "수정본",
        "prepare_data" => "데이터 준비",
        "wait_dma_data" => "데이터 DMA 대기",
        "prepare_node" => "노드 준비",
        "wait_dma_node" => "노드 DMA 대기",
        "flush" => "플러시",
        "other" => "기타",
        "F2FS log-structured direct I/O" => "F2FS 로그 기반 direct I/O",
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_found_by_its_parts_and_the_closest_one_is_taken() {
        let ko = |what| claim(what, Lang::Ko);
        assert_eq!(
            ko("EXT4: share of blocks that move on direct overwrite"),
            Some(C63.ko.to_owned())
        );
        assert_eq!(
            ko("table2: share of IT in the conflicts").as_deref(),
            Some("표 2: 저널 충돌에서 IT의 비율")
        );
        assert_eq!(ko("what no claim says"), None);
        assert_eq!(claim("as it is", Lang::En).as_deref(), Some("as it is"));
        assert_eq!(ALL.len(), TEXTS.len());
    }
}
