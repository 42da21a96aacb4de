//! Texts of paper direct-io.

use super::texts;

texts! {
    DIRECT_TITLE: "Analysis of direct I/O implementation and performance", "파일 시스템별 Direct I/O 동작 방식 분석 및 성능 평가";
    DIRECT_SAYS: "The paper compares four file systems (in-place, copy-on-write, log-structured) under O_DIRECT, with records of 4 KB to 4 MB, sequential and random. F2FS, whose new direct writes are in place, is fastest at nearly all sizes, but gives up the recovery of its log; NILFS2 has no direct writes and silently buffers them.",
        "제자리 쓰기, copy-on-write, 로그 방식의 파일 시스템 네 가지를 O_DIRECT로 레코드 4 KB부터 4 MB까지 순차·임의 쓰기에서 비교합니다. 새로 들어간 제자리 direct I/O를 쓰는 F2FS가 거의 모든 크기에서 가장 빠르지만 로그가 주던 복구를 잃고, NILFS2는 direct 쓰기가 없어 조용히 buffered로 처리합니다.";
    DIRECT_SETUP: "Linux 3.13-rc2, class of a Samsung 840 Pro 128 GB, i7-3820 (assumed costs); MobiBench. The paper gives no file size. BTRFS and NILFS2 follow the rules of 6.12, on the block layer of 3.13.",
        "Linux 3.13-rc2, 삼성 840 Pro 128 GB급, i7-3820(비용은 가정), MobiBench. 논문은 파일 크기를 밝히지 않습니다. BTRFS와 NILFS2는 6.12의 규칙을 3.13의 블록 계층 위에서 따릅니다.";
    DIRECT_SEQUENTIAL: "Sequential writes", "순차 쓰기 성능";
    DIRECT_FRESH: "a new file (judged)", "새 파일(판정 대상)";
    DIRECT_FILLED: "overwriting an existing file", "이미 있는 파일 위에 쓰기";
    DIRECT_RANDOM: "Random writes", "임의 쓰기 성능";
    DIRECT_CAPTION: "Mean of {0} runs; whiskers show the best and the worst. “to its logs” is Writepath's log-structured direct I/O for F2FS, future work of the paper.",
        "{0}회 실행의 평균이며 세로선은 최선과 최악입니다. ‘로그에 기록’은 논문이 향후 과제로 남긴 F2FS의 로그 기반 direct I/O입니다.";
    DIRECT_RATIO: "{0}, over F2FS", "{0}, F2FS 대비";
    DIRECT_RATIO_CAPTION: "Dashed lines are the paper's means over all sizes, shaded areas the bands; compare them with the mean of our line.",
        "점선은 논문이 밝힌 전체 크기 평균, 음영은 허용 범위입니다. 비교할 우리 값은 선의 평균입니다.";
    DIRECT_MEAN_IS: "mean over sizes {0}", "전체 크기 평균 {0}";
    DIRECT_RECORD: "record", "레코드 크기";
    DIRECT_THROUGHPUT: "throughput", "처리량";
    DIRECT_IOPS: "records a second", "초당 레코드 수";
    DIRECT_OVER_F2FS: "over F2FS", "F2FS 대비";
    DIRECT_TO_LOGS: "F2FS, to its logs", "F2FS, 로그에 기록";
    DIRECT_MECH: "Moved blocks, and other writes sent to the drive", "누가 블록을 옮기고 무엇을 함께 기록하는가";
    DIRECT_MECH_CAPTION: "moved: share of the file's blocks whose address changes; in order: bios that begin where the previous one ended.",
        "이동: 쓰기 후 주소가 바뀐 파일 블록의 비율. 연속: 앞 bio가 끝난 자리에서 시작하는 bio의 비율.";
    DIRECT_NUMBER: "§4, from our trace", "§4, 우리 트레이스";
    DIRECT_SYSTEM: "system", "시스템";
    DIRECT_MOVED: "moved", "이동";
    DIRECT_BIOS: "bios per write", "쓰기당 bio";
    DIRECT_IN_ORDER: "in order", "연속";
    DIRECT_BESIDE: "other than data, in the writes", "쓰기 중 데이터 외";
    DIRECT_SYNC: "fdatasync", "fdatasync 때";
    DIRECT_FSYNC: "in the following fsync", "이어지는 fsync 때";
    DIRECT_OVERWRITE_RANDOM: "random overwrite, {0}", "임의 덮어쓰기, {0}";
    DIRECT_OVERWRITE: "overwrite, {0}", "덮어쓰기, {0}";
    DIRECT_EXTENSION: "extension, {0}", "확장, {0}";
    DIRECT_CUTS: "Direct writes after a power failure", "전원 차단 후 direct 쓰기에서 남는 것";
    DIRECT_CUTS_CAPTION: "Overwrites of 16 KiB, one every 3 s; crash states of a drive with a volatile cache, each recovered. all, some, none: how many acknowledged writes survive.",
        "파일 위에 16 KiB를 3초마다 쓰는 동안 캐시가 있는 드라이브에 남을 수 있는 상태를 각각 복구했습니다. 응답이 끝난 쓰기가 모두/일부/하나도 남지 않은 경우입니다.";
    DIRECT_SHARE_OF_STATES: "share of states", "상태의 비율";
    DIRECT_WITH_FSYNC: "{0}, fsync", "{0}, fsync 후";
    DIRECT_ALL: "all there", "모두 남음";
    DIRECT_SOME: "some there", "일부 남음";
    DIRECT_NONE: "none there", "남지 않음";
    DIRECT_TORN: "torn", "찢어짐";
    DIRECT_ORDER: "out of order", "순서 뒤바뀜";
    DIRECT_SYNCED: "synced, missing", "sync 후 없음";
    DIRECT_FOREIGN: "foreign", "쓴 적 없는 내용";
    DIRECT_REFUSED: "refused", "거부";
    DIRECT_MOST: "most missing", "최대 유실";
    DIRECT_STATES: "states", "상태";
    DIRECT_CUTS_TABLE_CAPTION: "torn: a write survives in part; out of order: a write survives and an earlier one does not; synced: fsynced data is missing; foreign: a block holds data never written there.",
        "찢어짐: 쓰기 하나가 일부만 있음. 순서 뒤바뀜: 나중 쓰기는 있고 앞선 쓰기는 없음. sync 후 없음: fsync가 응답한 내용이 없음. 쓴 적 없는 내용: 블록에 쓴 적 없는 내용이 있음.";
    DIRECT_NOTED: "Note to the user: {0}", "사용자에게 알리는 말: {0}";
}
