# Parameters: as published with filebench 1.5 (oltp.f). The text is ours.
# A database: readers, and writers of data and log that they drive.
set $dir=/
set $eventrate=0
set $runtime=60
set $iosize=2k
set $nshadows=200
set $ndbwriters=10
set $usermode=200000
set $filesize=10m
set $memperthread=1m
set $workingset=0
set $logfilesize=10m
set $nfiles=10
set $nlogfiles=1
set $directio=0

eventgen rate=$eventrate

define fileset name=datafiles,path=$dir,size=$filesize,entries=$nfiles,dirwidth=1024,prealloc=100,reuse
define fileset name=logfile,path=$dir,size=$logfilesize,entries=$nlogfiles,dirwidth=1024,prealloc=100,reuse

define process name=log-writer,instances=1 {
  thread name=log-writer,memsize=$memperthread,useism {
    flowop aiowrite name=log-write,filesetname=logfile,iosize=256k,random,directio=$directio,dsync
    flowop aiowait name=log-wait
    flowop semblock name=log-block,value=3200,highwater=1000
  }
}

define process name=db-writer,instances=$ndbwriters {
  thread name=db-writer,memsize=$memperthread,useism {
    flowop aiowrite name=db-write,filesetname=datafiles,iosize=$iosize,workingset=$workingset,random,iters=100,opennext,directio=$directio,dsync
    flowop hog name=db-hog,value=10000
    flowop semblock name=db-block,value=1000,highwater=2000
    flowop aiowait name=db-wait
  }
}

define process name=shadow,instances=$nshadows {
  thread name=shadow,memsize=$memperthread,useism {
    flowop read name=shadow-read,filesetname=datafiles,iosize=$iosize,workingset=$workingset,random,opennext,directio=$directio
    flowop hog name=shadow-hog,value=$usermode
    flowop sempost name=shadow-post-log,value=1,target=log-block,blocking
    flowop sempost name=shadow-post-db,value=1,target=db-block,blocking
    flowop eventlimit name=shadow-rate
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run $runtime
