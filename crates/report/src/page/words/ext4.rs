//! Texts of paper ext4-fsync.

use super::texts;

texts! {
    EXT4_TITLE: "Ext4 fsync() by kernel version", "커널 버전별 Ext4 fsync() 동작 분석";
    EXT4_SAYS: "The work of one fsync() in the block layer, the journal and the disk changed twice: until 3.7 it writes the dirty pages of every file in the transaction; from 3.8 it does not, which is faster but breaks ordered mode; 4.6.2 fixes that. The paper shows this with block traces of one fsync among ten files, and measures the growth of latency and written data from 1 to 1000 files.",
        "fsync() 한 번이 블록 계층과 저널과 디스크에 시키는 일은 두 번 바뀌었습니다. 3.7까지는 트랜잭션에 든 모든 파일의 더티 페이지를 기록하고, 3.8부터는 기록하지 않아 빠르지만 순차 모드(ordered)가 깨지며, 4.6.2에서 이 결함이 해결됩니다. 논문은 파일 10개 중 하나에 대한 fsync()의 블록 트레이스로 이를 보이고, 파일 1~1000개에서 지연 시간과 기록된 데이터가 어떻게 늘어나는지 측정합니다.";
    EXT4_SETUP: "Ext4 of Linux 3.4, 3.8 and 4.6, CFQ, on a partition with the paper's layout (29 GiB at sector 187035648). PC: a class of 128 GB SATA SSDs, i7-4770; phone: 16 GB eMMC, Snapdragon 800. All numbers below are predictions.",
        "3.4, 3.8, 4.6 시기의 Ext4, CFQ 스케줄러, 논문과 같은 파티션 배치(29 GiB, 섹터 187035648부터). PC는 128 GB SATA SSD급과 i7-4770, 휴대전화는 16 GB eMMC와 Snapdragon 800입니다. 아래 값은 모두 예측입니다.";
    EXT4_TRACE_TITLE: "One fsync among ten files, kernel {0}, {1}", "파일 10개 중 하나의 fsync(), 커널 {0}, {1}";
    EXT4_TRACE_CAPTION: "Each bar is a request from dispatch to completion, in the lane of the task that dispatched it. The time axis is not to scale. Traces of 3.4 and 3.8 have no flush completions: a flush is drawn until the request that waits for it continues.",
        "막대는 요청 하나의 디스패치부터 완료까지이며, 디스패치한 태스크의 줄에 그렸습니다. 세로 칸은 시점이며 길이는 시간에 비례하지 않습니다. 3.4와 3.8의 트레이스에는 플러시의 완료가 없으므로, 플러시를 기다리던 요청이 이어지는 시점까지 그렸습니다.";
    EXT4_TRACE_NUMBER: "Trace, §4.2–4.3", "트레이스, §4.2–4.3";
    EXT4_MATRIX_TITLE: "Sectors dispatched, by phase, blocks and task", "단계·블록·태스크별로 디스패치된 섹터 수";
    EXT4_MATRIX_CAPTION: "3 KB written to each of ten files, fsync of the last, then 76 s of tracing. “later” counts seconds after the call of fsync: the flusher, the second commit, the checkpoint. The split of data into requests is not judged.",
        "파일 10개에 3 KB씩 쓰고 마지막 파일만 fsync()한 뒤 76초 동안 관찰했습니다. ‘이후’의 시각은 fsync() 호출부터 센 초이며 플러셔, 두 번째 커밋, 체크포인트가 여기에 속합니다. 데이터가 요청으로 어떻게 나뉘는지는 판정하지 않습니다.";
    EXT4_IN_FSYNC: "in the fsync", "fsync() 안";
    EXT4_LATER: "later, {0} s", "이후, {0}초";
    EXT4_PHASE: "Phase", "단계";
    EXT4_BLOCKS: "Blocks", "블록";
    EXT4_TASK: "Task", "태스크";
    EXT4_FIG9_TITLE: "On disk when fsync returns", "fsync()가 반환될 때 디스크에 있는 것";
    EXT4_FIG9_CAPTION: "D: the file's data. M, table: the inode-table block that holds its inode is in the journal. M, size: a logged copy of its inode has this write's size. The paper's text says that 3.8 logs only M9, its trace logs both inode-table blocks, which hold all ten inodes.",
        "D는 파일의 데이터, ‘M, 테이블’은 그 아이노드가 든 아이노드 테이블 블록이 저널에 있는지, ‘M, 크기’는 저널에 기록된 아이노드 사본이 이번 쓰기의 크기를 갖는지를 뜻합니다. 논문 본문은 3.8이 M9만 기록한다고 하지만, 논문의 트레이스는 아이노드 10개가 모두 든 아이노드 테이블 블록 두 개를 기록합니다.";
    EXT4_D: "D, data", "D, 데이터";
    EXT4_M_TABLE: "M, table", "M, 테이블";
    EXT4_M_SIZE: "M, size", "M, 크기";
    EXT4_ERA: "Era", "시기";
    EXT4_CASE: "Case", "경우";
    EXT4_FIG10_LEFT: "Figure 10, left", "그림 10 왼쪽";
    EXT4_FIG10_RIGHT: "Figure 10, right", "그림 10 오른쪽";
    EXT4_FIG11_LEFT: "Figure 11, left", "그림 11 왼쪽";
    EXT4_FIG11_RIGHT: "Figure 11, right", "그림 11 오른쪽";
    EXT4_LATENCY_OF: "Latency of the fsync, {0}", "fsync() 지연 시간, {0}";
    EXT4_LATENCY_CAPTION: "2 KB written to each of N files, one fsync. The paper's text gives no latency in µs, so this figure is not compared; the next figure has its statements on growth.",
        "파일 N개에 2 KB씩 쓰고 fsync()를 한 번 부릅니다. 논문 본문에는 µs 단위 값이 없으므로 그리기만 하고, 증가에 대한 진술은 옆 그림에서 다룹니다.";
    EXT4_GROWTH: "Latency over that of one file, {0}", "파일 1개일 때 대비 지연 시간, {0}";
    EXT4_GROWTH_CAPTION: "1 is the latency with N = 1. The paper: up 30 % at least and 1100 % at most in 3.4, N from 1 to 1000, non-allocating.",
        "N = 1일 때의 지연 시간을 1로 둡니다. 논문: 3.4의 비할당 쓰기에서 N을 1부터 1000까지 늘리면 최소 30 %, 최대 1100 % 증가합니다.";
    EXT4_DATA_BLOCKS: "Data blocks that the fsync writes, {0}", "fsync()가 기록하는 데이터 블록 수, {0}";
    EXT4_DATA_CAPTION: "Blocks of 4 KiB in the data area, from the call of fsync to its return. Every cell must match exactly.",
        "fsync() 호출부터 반환까지 데이터 영역에 기록된 4 KiB 블록 수. 모든 칸이 정확히 같아야 합니다.";
    EXT4_METADATA: "Metadata blocks in the journal, {0}", "저널에 기록된 메타데이터 블록 수, {0}";
    EXT4_METADATA_CAPTION: "When fsync returns, without descriptors and the commit record. The paper: more than seven times as many with 1000 files as with 100.",
        "fsync()가 반환될 때까지이며 디스크립터와 커밋 블록은 세지 않습니다. 논문: 파일 1000개일 때 100개일 때의 7배 이상입니다.";
    EXT4_FILES: "files N", "파일 수 N";
    EXT4_LATENCY: "latency", "지연 시간";
    EXT4_TIMES_ONE: "times that of N = 1", "N = 1 대비 배수";
    EXT4_DATA_AXIS: "data blocks", "데이터 블록";
    EXT4_META_AXIS: "metadata blocks", "메타데이터 블록";
    EXT4_PHONE: "{0} phone", "{0} 휴대전화";
    EXT4_NULL_TITLE: "Latency ratios and null predictors", "지연 시간 비율과 귀무 예측";
    EXT4_NULL_CAPTION: "Do simple formulas predict figure 10 equally well? counts: blocks and flushes times constants; log N: by the paper's largest growth; no era: no difference between kernels. Last row: mean |ln(predicted / paper)|, smaller is better.",
        "그림 10을 그만큼 잘 맞히는 단순한 식이 있는가? counts는 블록과 플러시 수에 상수를 곱한 값, log N은 논문의 최대 증가율로 정한 로그 식, no era는 커널 차이가 없다고 본 값입니다. 마지막 행은 |ln(예측 / 논문)|의 평균으로 작을수록 좋습니다.";
    EXT4_MEAN_DISTANCE: "mean distance", "평균 거리";
    EXT4_CUTS_TITLE: "Power failures, data=ordered", "전원 차단, data=ordered";
    EXT4_CUTS_CAPTION: "Crash states of the drive (eMMC, CFQ), each recovered: number of states in which a file shows data that it never held (exposure), has a length without the data (ahead), or lacks data of a completed sync.",
        "드라이브(eMMC, CFQ)에 남을 수 있는 상태를 모두 복구해 보았습니다. 파일이 가진 적 없는 내용을 보이는 경우(노출), 데이터 없이 길이만 늘어난 경우(앞섬), 완료된 sync가 약속한 내용이 없는 경우의 수입니다.";
    EXT4_PROGRAMS: "programs", "프로그램";
    EXT4_CUT: "cut", "횟수";
    EXT4_STATES: "states", "상태";
    EXT4_DISTINCT: "distinct", "서로 다른 것";
    EXT4_EXPOSURE: "exposure", "노출";
    EXT4_SIZE_AHEAD: "size ahead", "크기 앞섬";
    EXT4_TAIL_AHEAD: "tail ahead", "꼬리 앞섬";
    EXT4_LOST: "lost sync", "잃은 sync";
    EXT4_NO_CUTS: "This run explored no power failures (`reproduce ext4-fsync --crash`); claims about them have no value.",
        "전원 차단 실험을 요청하지 않았습니다(`reproduce ext4-fsync --crash`). 관련 주장은 이 실행에서 값이 없습니다.";
    EXT4_REAL_TITLE: "The same program on real kernels", "실제 커널에서 실행한 같은 프로그램";
    EXT4_REAL_CAPTION: "Recorded runs of Linux 3.4.2, 3.8.0, 4.6.2, 5.10.223 and 6.18: blocks by class and task, flags, order, times. A run is equal if none of these differs.",
        "Linux 3.4.2, 3.8.0, 4.6.2, 5.10.223, 6.18에서 기록한 실행과 블록 종류·태스크·플래그·순서·시각을 비교했습니다. 어느 것도 다르지 않으면 같은 실행으로 셉니다.";
    EXT4_KERNEL: "Kernel", "커널";
    EXT4_RUNS: "runs", "실행 수";
    EXT4_EQUAL: "equal in everything", "완전히 같은 실행";
    EXT4_NOT_EQUAL: "with a listed difference", "차이를 적어 둔 실행";
    EXT4_LISTED_TITLE: "Differences from real kernels, each with its reason", "실제 커널과의 차이와 그 이유";
    EXT4_LISTED_CAPTION: "From papers/ext4-fsync/differences.toml. An unlisted difference fails the run, and so does a listed one that no longer occurs.",
        "papers/ext4-fsync/differences.toml에 적힌 그대로입니다. 목록에 없는 차이가 나타나거나 더는 다르지 않은 항목이 남아 있으면 실행이 실패합니다.";
    EXT4_WHAT: "what", "항목";
    EXT4_THEIRS: "theirs", "커널";
    EXT4_FUNCTION: "kernel function", "커널 함수";
}
