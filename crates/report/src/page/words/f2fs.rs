//! Texts of paper f2fs-oprw.

use super::texts;

texts! {
    F2FS_TITLE: "Order-preserving recovery for F2FS with ZNS SSDs", "ZNS SSD 기반 F2FS의 순서 보존 복구 기법(OPRW)";
    F2FS_SAYS: "F2FS's fsync can lose data at a power failure, because flash is not programmed in the order of the DMA transfers, and strict mode avoids this with another flush. OPRW solves it at recovery: it compares addresses with the zones' write pointers, so that fsync can send the node without waiting for the data.",
        "F2FS의 fsync()는 DMA 전송 순서와 낸드에 기록되는 순서가 다르기 때문에 전원 장애 때 데이터를 잃을 수 있고, 이를 막는 strict 모드는 플러시를 한 번 더 치릅니다. OPRW는 복구할 때 존의 쓰기 포인터와 주소를 대조하여 일관성을 지키며, 그 덕분에 데이터 전송을 기다리지 않고 노드를 보낼 수 있습니다.";
    F2FS_SETUP: "F2FS of Linux 5.14 on a model of the ZN540, with and without power-loss protection, Xeon Silver 4116. Table 3.1 calibrates the CPU costs and the drive latencies: it is an input, and everything else is a prediction.",
        "5.14의 F2FS를 ZN540 모델 위에서 전원 손실 보호(PLP)가 있을 때와 없을 때로 나누어 실행했습니다. CPU는 Xeon Silver 4116입니다. 표 3.1은 CPU 비용과 드라이브 지연을 보정하는 입력이고, 나머지는 모두 예측입니다.";
    F2FS_STAGES: "Stages of a 4 KiB random write and fsync, PLP", "4 KiB 임의 쓰기와 fsync()의 단계별 수행 시간(PLP)";
    F2FS_STAGES_CAPTION: "Input. Our value is the result of the calibrated model.", "입력입니다. 우리 값은 보정한 모델이 되돌려 주는 값입니다.";
    F2FS_PREPARE_DATA: "prepare data", "데이터 준비";
    F2FS_WAIT_DATA: "wait data", "데이터 DMA 대기";
    F2FS_PREPARE_NODE: "prepare node", "노드 준비";
    F2FS_WAIT_NODE: "wait node", "노드 DMA 대기";
    F2FS_FLUSH: "flush", "플러시";
    F2FS_OTHER: "other", "기타";
    F2FS_TIME: "time", "시간";
    F2FS_SIZE: "request size", "요청 크기";
    F2FS_RATE: "requests per second", "초당 요청 수";
    F2FS_61A: "Random write and fsync, without PLP", "fsync()를 동반한 임의 쓰기, PLP 없음";
    F2FS_61A_CAPTION: "One thread. strict_fixed sends a flush between data and node; OPRW does not.",
        "단일 스레드. strict_fixed는 데이터와 노드 사이에 플러시를 넣고 OPRW는 넣지 않습니다.";
    F2FS_61A_RATIO: "The same over posix", "posix 대비 비율";
    F2FS_61A_RATIO_CAPTION: "The paper: strict 44 % below posix, OPRW as fast as posix.", "논문: strict는 posix보다 44 % 낮고 OPRW는 posix와 같습니다.";
    F2FS_61B: "Random write and fsync, with PLP", "fsync()를 동반한 임의 쓰기, PLP 있음";
    F2FS_61B_CAPTION: "One thread, nobarrier: no flush is sent.", "단일 스레드, nobarrier: 플러시를 보내지 않습니다.";
    F2FS_61B_GAIN: "Gain of OPRW, with PLP", "OPRW의 이득, PLP 있음";
    F2FS_61B_GAIN_CAPTION: "The paper: 18 % to 42 %, depending on the size. Shaded areas are the bands of the smallest and the largest gain.",
        "논문: 크기에 따라 18 %에서 42 %. 음영은 최소 이득과 최대 이득의 허용 범위입니다.";
    F2FS_OVER_POSIX: "over posix", "posix 대비";
    F2FS_OVER_F2FS: "OPRW over F2FS", "F2FS 대비 OPRW";
    F2FS_62: "varmail and OLTP-insert, one thread", "varmail과 OLTP-Insert, 단일 스레드";
    F2FS_62_CAPTION: "Operations per second of OPRW, relative to F2FS. Without PLP the paper's text gives no number.",
        "F2FS 대비 OPRW의 초당 작업 수. PLP가 없는 경우에는 논문 본문에 값이 없습니다.";
    F2FS_62_RATES: "Rates of the figure, operations per second", "그림의 바탕이 된 초당 작업 수";
    F2FS_WORKLOAD: "Workload", "워크로드";
    F2FS_GAIN: "gain", "이득";
    F2FS_63: "varmail with more threads, PLP", "스레드 수에 따른 varmail, PLP";
    F2FS_63_CAPTION: "The paper: the gain is clear with few threads and fades with many.", "논문: 스레드가 적으면 이득이 뚜렷하고 많아지면 줄어듭니다.";
    F2FS_63_GAIN: "Gain of OPRW over threads", "스레드 수에 따른 OPRW의 이득";
    F2FS_THREADS: "threads", "스레드 수";
    F2FS_OPS: "operations per second", "초당 작업 수";
    F2FS_T62: "Power failures at random times", "임의의 시점의 전원 차단";
    F2FS_T62_CAPTION: "failed: the file holds data never written there (the paper's oracle); lost: fsynced data is missing; mixed: the data is of several versions; left out: power failures after which OPRW leaves nodes out. The interval of the share is 95 % over seeds.",
        "실패: 파일에 쓴 적 없는 내용이 있음(논문의 판정 기준). 잃음: 반환된 fsync()가 약속한 내용이 없음. 섞임: 어느 한 버전도 아님. 제외: OPRW가 노드를 제외한 경우. 비율의 구간은 시드에 대한 95 % 구간입니다.";
    F2FS_MODE: "mode", "모드";
    F2FS_SEEDS: "seeds", "시드";
    F2FS_CUTS: "cuts", "차단 횟수";
    F2FS_RECOVERIES: "recoveries", "복구 횟수";
    F2FS_FAILED: "failed", "실패";
    F2FS_SHARE: "share, %", "비율(%)";
    F2FS_LOST: "lost", "잃음";
    F2FS_MIXED: "mixed", "섞임";
    F2FS_REFUSED: "refused", "거부";
    F2FS_LEFT_OUT: "left out", "제외";
    F2FS_EXAMPLE: "example", "예";
    F2FS_SURFACE: "Failure rate of posix, %: buffer of {0} MiB", "posix의 실패율(%): 쓰기 버퍼 {0} MiB";
    F2FS_SURFACE_CAPTION: "The paper does not give the buffer, the dies or the period of its internal flush. Rows are dies (with the number of channels), columns are periods. ★: compatible with the paper's 30 of 1000. Point at a cell for its 95 % interval.",
        "논문은 버퍼 크기, 다이 수, 내부 플러시 주기를 밝히지 않습니다. 행은 다이 수(채널 수), 열은 주기입니다. ★는 논문의 1000회 중 30회와 양립하는 실패율입니다. 칸에 커서를 올리면 95 % 구간이 보입니다.";
    F2FS_SURFACE_NUMBER: "Table 6.2, the region", "표 6.2의 매개변수 영역";
    F2FS_DIES: "dies (channels)", "다이(채널)";
    F2FS_NO_PERIOD: "none", "없음";
    F2FS_PERIOD: "{0} µs", "{0} µs 주기";
    F2FS_T63: "Roll-forward after a power failure in varmail", "varmail 도중 차단 후의 전방향 복구";
    F2FS_T63_CAPTION: "Operations are counted in a run; the cost of each is an input, from the paper's times.",
        "복구 작업량은 실행하여 세고, 작업 하나의 비용은 논문의 시간에서 얻은 입력입니다.";
    F2FS_NODES: "nodes scanned", "검사한 노드 수";
    F2FS_MS: "F2FS, ms", "F2FS 시간(ms)";
    F2FS_CHECK_MS: "check, ms", "검사(ms)";
    F2FS_EXTRA: "extra", "추가 비율";
    F2FS_EXTRA_AXIS: "extra time of the check", "검사에 드는 추가 시간";
    F2FS_READS: "extra reads", "추가 읽기";
    F2FS_T63_FIGURE: "Extra time of the check", "검사가 더하는 시간";
    F2FS_FLOW: "One fsync: {0}, {1}", "fsync() 한 번: {0}, {1}";
    F2FS_FLOW_CAPTION: "Recorded from a run, {0} µs. Host: preparation and dispatch; hollow bars are waits. device: from dispatch to completion; flash: until programmed, on the named dies. The time axis is not to scale.",
        "실행에서 기록한 것으로 {0} µs가 걸렸습니다. 호스트 줄은 준비·디스패치하는 대상이며 빈 막대는 대기입니다. device는 디스패치부터 완료까지, flash는 해당 다이에 기록될 때까지입니다. 세로 칸은 시점이며 길이는 시간에 비례하지 않습니다.";
    F2FS_FLOW_TOOK: "{0} µs; bars as above.", "{0} µs. 막대의 뜻은 위와 같습니다.";
    F2FS_WITH_PLP: "with PLP", "PLP 있음";
    F2FS_WITHOUT_PLP: "without PLP", "PLP 없음";
    F2FS_HOST: "host", "호스트";
    F2FS_DEVICE: "device", "장치";
    F2FS_FLASH: "flash", "플래시";
    F2FS_ON_DIES: "{0}: dies {1}", "{0}: 다이 {1}";
    F2FS_POINTERS: "Write pointers of the drive, figure 2.1a's run", "그림 2.1a 실행에서 드라이브의 쓰기 포인터";
    F2FS_POINTERS_CAPTION: "Blocks from the start of each zone, for zones where the pointers differ: the host's view (wp-zns) and the programmed part (wp-nand). Power fails at ⚡: each wp-zns returns to wp-nand, and mount rolls {0} nodes forward. Read without the check: {1}. With the check (one report of {2} zones, {3} addresses compared with pointers): {4}.",
        "존의 시작부터 센 블록 수이며 두 포인터가 다른 존만 보입니다. wp-zns는 호스트가 보는 위치, wp-nand는 실제로 기록된 위치입니다. ⚡에서 전원이 끊기면 wp-zns는 wp-nand로 되돌아가고 마운트는 노드 {0}개를 전방향 복구합니다. 검사 없이 읽으면 {1}. 검사하면(존 {2}개 보고 1회, 주소 {3}개 대조) {4}.";
    F2FS_FIGURES_5: "Figures 5.1, 5.3, 5.4", "그림 5.1, 5.3, 5.4";
    F2FS_BROKEN: "byte {0} holds data that was never written there", "{0}번째 바이트에 쓴 적 없는 내용이 있습니다";
    F2FS_WHOLE: "the whole file is as written", "파일 전체가 쓴 내용 그대로입니다";
    F2FS_AT: "µs", "시각(µs)";
    F2FS_ZONE: "zone", "존";
    F2FS_BEHIND: "not yet on flash", "아직 플래시에 없음";
    F2FS_LEFT_OUT_LIST: "Left out by the check", "검사가 제외한 노드";
}
