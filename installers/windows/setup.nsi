; Setup of FreeToken Desktop for one user: no administrator, chats and models are never touched unless
; asked. Compiled by setup.py, which gives BUILD, OUT, VERSION, VERSION4, SIZE_KB and ROOT; see
; README.md. Keep what needs Windows to be tried here as small as it is.

Unicode true
!ifdef TARGET
  Target ${TARGET}
!endif
!ifdef FINAL
  SetCompressor /SOLID lzma
  SetCompressorDictSize 64
!else
  SetCompressor zlib
!endif
ManifestDPIAware true
ManifestLongPathAware true
RequestExecutionLevel user

!ifdef SIGN
  !uninstfinalize '${SIGN} "%1"' = 0
  !finalize '${SIGN} "%1"' = 0
!endif

!include MUI2.nsh
!include FileFunc.nsh
!include LogicLib.nsh
!include nsDialogs.nsh

!define TITLE "FreeToken Desktop"
!define PROGRAM "freetoken.exe"
!define ENGINE "freetoken-engine.exe"
!define ABOUT "Software\FreeToken Desktop"
!define LISTED "Software\Microsoft\Windows\CurrentVersion\Uninstall\FreeToken Desktop"
!define KINDS "Software\Classes"
!define KIND "FreeToken.Model"
!define DATA "$LOCALAPPDATA\FreeToken Desktop"

Name "${TITLE}"
OutFile "${OUT}"
BrandingText "${TITLE} ${VERSION}"
InstallDir "$LOCALAPPDATA\Programs\FreeToken Desktop"
InstallDirRegKey HKCU "${ABOUT}" "Folder"
AllowRootDirInstall false
SetOverwrite on
CRCCheck on

VIProductVersion "${VERSION4}"
VIFileVersion "${VERSION4}"
VIAddVersionKey "ProductName" "${TITLE}"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "${TITLE} setup"
VIAddVersionKey "CompanyName" "The FreeToken Desktop authors"
VIAddVersionKey "LegalCopyright" "Apache License 2.0"

!define MUI_ICON "${ROOT}/resources/icons/app/freetoken.ico"
!define MUI_UNICON "${ROOT}/resources/icons/app/freetoken.ico"
!define MUI_WELCOMEFINISHPAGE_BITMAP "${ROOT}/installers/windows/side.bmp"
!define MUI_ABORTWARNING
!define MUI_DIRECTORYPAGE_TEXT_TOP "$(WHERE)"
!define MUI_FINISHPAGE_TEXT "$(DONE)"
!define MUI_FINISHPAGE_RUN "$INSTDIR\${PROGRAM}"
!define MUI_FINISHPAGE_SHOWREADME
!define MUI_FINISHPAGE_SHOWREADME_NOTCHECKED
!define MUI_FINISHPAGE_SHOWREADME_TEXT "$(ON_DESKTOP)"
!define MUI_FINISHPAGE_SHOWREADME_FUNCTION PutOnDesktop
!define MUI_LANGDLL_ALLLANGUAGES

!define MUI_PAGE_CUSTOMFUNCTION_SHOW SayWhere
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
UninstPage custom un.AskPage un.AskLeave
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"
!insertmacro MUI_LANGUAGE "SimpChinese"

LangString WHERE ${LANG_ENGLISH} "The program goes into this folder. Chats, settings and models are kept elsewhere:$\r$\n${DATA}"
LangString WHERE ${LANG_SIMPCHINESE} "程序将安装到此文件夹。对话、设置和模型另存于：$\r$\n${DATA}"
LangString DONE ${LANG_ENGLISH} "Installed in:$\r$\n$INSTDIR$\r$\n$\r$\nChats, settings and models are kept in:$\r$\n${DATA}"
LangString DONE ${LANG_SIMPCHINESE} "已安装到：$\r$\n$INSTDIR$\r$\n$\r$\n对话、设置和模型保存在：$\r$\n${DATA}"
LangString ON_DESKTOP ${LANG_ENGLISH} "Put a shortcut on the desktop"
LangString ON_DESKTOP ${LANG_SIMPCHINESE} "在桌面上创建快捷方式"
LangString RUNNING ${LANG_ENGLISH} "FreeToken Desktop is running. Quit it, also by its icon in the notification area, then try again."
LangString RUNNING ${LANG_SIMPCHINESE} "FreeToken Desktop 正在运行。请退出它（包括通知区域中的图标），然后重试。"
LangString FOREIGN ${LANG_ENGLISH} "This folder belongs to another program. Choose another one."
LangString FOREIGN ${LANG_SIMPCHINESE} "此文件夹属于另一个程序。请选择其他文件夹。"
LangString LOCKED ${LANG_ENGLISH} "Some files of the program are in use and could not be removed. Restart Windows, then try again."
LangString LOCKED ${LANG_SIMPCHINESE} "程序的某些文件正在使用中，无法删除。请重新启动 Windows，然后重试。"
LangString REMOVE ${LANG_ENGLISH} "Remove the program"
LangString REMOVE ${LANG_SIMPCHINESE} "卸载程序"
LangString KEPT ${LANG_ENGLISH} "Your data stays unless you tick it here. Libraries that the engine fetched go: they can be fetched again. Models in a folder of your own choice always stay."
LangString KEPT ${LANG_SIMPCHINESE} "除非在此勾选，否则您的数据会保留。引擎下载的运行库会被删除，可以重新下载。您自选文件夹中的模型始终保留。"
LangString CHATS ${LANG_ENGLISH} "Delete all chats, settings, profiles, logs and stored access tokens too"
LangString CHATS ${LANG_SIMPCHINESE} "同时删除所有对话、设置、测量结果、日志和保存的访问令牌"
LangString MODELS ${LANG_ENGLISH} "Delete all models that the program keeps, and downloads begun, too"
LangString MODELS ${LANG_SIMPCHINESE} "同时删除程序保存的所有模型和未完成的下载"
LangString LEFT ${LANG_ENGLISH} "These stay in ${DATA}:"
LangString LEFT ${LANG_SIMPCHINESE} "以下内容保留在 ${DATA}："

Var IsForeign
Var Old
Var IsUpdate
Var DropChats
Var DropModels
Var ChatsBox
Var ModelsBox

; A running program cannot be opened for writing. /SD: a silent run gives up instead of asking.
!macro NotRunning un name
  Function ${un}Check_${name}
    again:
    ${IfNot} ${FileExists} "$INSTDIR\${${name}}"
      Return
    ${EndIf}
    ClearErrors
    FileOpen $0 "$INSTDIR\${${name}}" a
    ${If} ${Errors}
      MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "$(RUNNING)" /SD IDCANCEL IDRETRY again
      SetErrorLevel 2
      Quit
    ${EndIf}
    FileClose $0
  FunctionEnd
!macroend
!insertmacro NotRunning "" PROGRAM
!insertmacro NotRunning "" ENGINE
!insertmacro NotRunning "un." PROGRAM
!insertmacro NotRunning "un." ENGINE

; Ours by name. One library in use would leave half a program: then stop while all that finds it again
; (uninstall.exe, the registry) is still there. /REBOOTOK needs an administrator, so it is no help.
!macro Clear un
  Function ${un}Clear
    again:
    Delete "$INSTDIR\${PROGRAM}"
    Delete "$INSTDIR\${ENGINE}"
    RMDir /r "$INSTDIR\_internal"
    ${If} ${FileExists} "$INSTDIR\_internal\*.*"
    ${OrIf} ${FileExists} "$INSTDIR\${PROGRAM}"
    ${OrIf} ${FileExists} "$INSTDIR\${ENGINE}"
      MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "$(LOCKED)" /SD IDCANCEL IDRETRY again
      SetErrorLevel 4
      Quit
    ${EndIf}
  FunctionEnd
!macroend
!insertmacro Clear ""
!insertmacro Clear "un."

; Tell Explorer that a kind of file changed, else it shows old icons until the next logon.
!define TELL "System::Call 'shell32::SHChangeNotify(i 0x08000000, i 0, p 0, p 0)'"

Function .onInit
  SetShellVarContext current
FunctionEnd

; Only a folder that is ours, or has nothing by our names, may be chosen: those are replaced. Security
; software may have taken a program, a removal may have ended half way: any one mark will do. An
; uninstall.exe is none, many programs have one; but the registry remembers our folder.
Function LookForOthers
  StrCpy $IsForeign 0
  ReadRegStr $Old HKCU "${ABOUT}" "Folder"
  ${If} ${FileExists} "$INSTDIR\_internal\*.*"
  ${AndIfNot} ${FileExists} "$INSTDIR\${PROGRAM}"
  ${AndIfNot} ${FileExists} "$INSTDIR\${ENGINE}"
  ${AndIfNot} ${FileExists} "$INSTDIR\_internal\resources\build.json"
  ${AndIf} $INSTDIR != $Old
    StrCpy $IsForeign 1
  ${EndIf}
FunctionEnd

Function SayWhere
  Call LookForOthers
  ${If} $IsForeign = 1
    SendMessage $mui.DirectoryPage.Text ${WM_SETTEXT} 0 "STR:$(FOREIGN)"
  ${Else}
    SendMessage $mui.DirectoryPage.Text ${WM_SETTEXT} 0 "STR:$(WHERE)"
  ${EndIf}
FunctionEnd

Function .onVerifyInstDir
  Call SayWhere ; a grey button alone says nothing
  ${If} $IsForeign = 1
    Abort
  ${EndIf}
FunctionEnd

; An update into another folder: the old copy would stay without an entry in Windows' list. _?= must be
; last and without quotes; with it the uninstaller runs where it lies, so that we can wait for its end.
Function RemoveOld
  ReadRegStr $Old HKCU "${ABOUT}" "Folder"
  ${If} $Old == ""
  ${OrIf} $Old == $INSTDIR
  ${OrIfNot} ${FileExists} "$Old\uninstall.exe"
    Return
  ${EndIf}
  again:
  StrCpy $0 4
  ExecWait '"$Old\uninstall.exe" /S /UPDATE _?=$Old' $0
  ${If} $0 = 0
    Delete "$Old\uninstall.exe"
    RMDir "$Old"
    Return
  ${EndIf}
  ${If} $0 = 2
    MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "$(RUNNING)" /SD IDCANCEL IDRETRY again
  ${Else}
    MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "$(LOCKED)" /SD IDCANCEL IDRETRY again
  ${EndIf}
  SetErrorLevel $0
  Quit
FunctionEnd

Function PutOnDesktop
  CreateShortcut "$DESKTOP\${TITLE}.lnk" "$INSTDIR\${PROGRAM}"
FunctionEnd

Section "Program"
  Call LookForOthers
  ${If} $IsForeign = 1
    MessageBox MB_OK|MB_ICONSTOP "$(FOREIGN)" /SD IDOK
    SetErrorLevel 3
    Quit
  ${EndIf}
  Call Check_PROGRAM
  Call Check_ENGINE
  Call Clear ; files of an older version must not mix with ours
  SetOutPath "$INSTDIR"
  File /r "${BUILD}/*"
  WriteUninstaller "$INSTDIR\uninstall.exe"
  Call RemoveOld ; not before the new copy is whole; it takes its entries below with it
  CreateShortcut "$SMPROGRAMS\${TITLE}.lnk" "$INSTDIR\${PROGRAM}"
  ${If} ${FileExists} "$DESKTOP\${TITLE}.lnk"
    Call PutOnDesktop ; it may point to the folder of before
  ${EndIf}
  WriteRegStr HKCU "${ABOUT}" "Folder" "$INSTDIR"
  WriteRegStr HKCU "${KINDS}\.ftw\OpenWithProgids" "${KIND}" ""
  WriteRegStr HKCU "${KINDS}\${KIND}" "" "FreeToken model"
  WriteRegStr HKCU "${KINDS}\${KIND}\DefaultIcon" "" "$INSTDIR\${PROGRAM},0"
  WriteRegStr HKCU "${KINDS}\${KIND}\shell\open\command" "" '"$INSTDIR\${PROGRAM}" "%1"'
  WriteRegStr HKCU "${LISTED}" "DisplayName" "${TITLE}"
  WriteRegStr HKCU "${LISTED}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${LISTED}" "DisplayIcon" "$INSTDIR\${PROGRAM}"
  WriteRegStr HKCU "${LISTED}" "Publisher" "The FreeToken Desktop authors"
  WriteRegStr HKCU "${LISTED}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${LISTED}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${LISTED}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${LISTED}" "EstimatedSize" ${SIZE_KB}
  WriteRegDWORD HKCU "${LISTED}" "NoModify" 1
  WriteRegDWORD HKCU "${LISTED}" "NoRepair" 1
  ${TELL}
SectionEnd

Function un.onInit
  SetShellVarContext current
  StrCpy $DropChats 0
  StrCpy $DropModels 0
  StrCpy $IsUpdate 1
  ${GetParameters} $0
  ClearErrors
  ${GetOptions} $0 "/UPDATE" $1
  ${If} ${Errors}
    StrCpy $IsUpdate 0
  ${EndIf}
FunctionEnd

Function un.AskPage
  !insertmacro MUI_HEADER_TEXT "$(REMOVE)" "$INSTDIR"
  nsDialogs::Create 1018
  Pop $0
  ${NSD_CreateLabel} 0 0 100% 76u "$(KEPT)$\r$\n$\r$\n${DATA}"
  Pop $0
  ${NSD_AddStyle} $0 0x2000 ; SS_EDITCONTROL: a path without spaces is broken, not clipped
  ${NSD_CreateCheckbox} 0 84u 100% 12u "$(CHATS)"
  Pop $ChatsBox
  ${NSD_CreateCheckbox} 0 102u 100% 12u "$(MODELS)"
  Pop $ModelsBox
  nsDialogs::Show
FunctionEnd

Function un.AskLeave
  ${NSD_GetState} $ChatsBox $DropChats
  ${NSD_GetState} $ModelsBox $DropModels
FunctionEnd

; The app's access tokens in Windows' Credential Manager: named TITLE, or NAME@TITLE once there are
; several. A remote engine's has its address in its name, so all are looked through.
Function un.ForgetTokens
  System::Call 'advapi32::CredEnumerateW(p 0, i 0, *i .r1, *p .r2) i .r0'
  ${If} $0 = 0
    Return
  ${EndIf}
  IntOp $1 $1 - 1
  ${ForEach} $3 0 $1 + 1
    IntOp $4 $3 * ${NSIS_PTR_SIZE}
    IntPtrOp $4 $2 + $4
    System::Call '*$4(p .r5)'
    System::Call '*$5(i, i .r6, w .r7)' ; flags, kind, name
    StrCpy $8 $7 "" -18
    ${If} $6 = 1
      ${If} $7 == "${TITLE}"
      ${OrIf} $8 == "@${TITLE}"
        System::Call 'advapi32::CredDeleteW(w r7, i r6, i 0)'
      ${EndIf}
    ${EndIf}
  ${Next}
  System::Call 'advapi32::CredFree(p r2)'
FunctionEnd

Function un.ForgetChats
  RMDir /r "${DATA}\chats"
  RMDir /r "${DATA}\profiles"
  RMDir /r "${DATA}\logs"
  ; Each may have a damaged one beside it, and drafts that a crash left.
  Delete "${DATA}\settings.json*"
  Delete "${DATA}\settings.v*.json"
  Delete "${DATA}\jobs.json*"
  Delete "${DATA}\presets.json*"
  Delete "${DATA}\.*.json.*"
  Delete "${DATA}\app.lock*"
  Call un.ForgetTokens
FunctionEnd

Function un.ListLeft
  ClearErrors
  FindFirst $0 $1 "${DATA}\*.*"
  ${IfNot} ${Errors}
    SetDetailsView show
    DetailPrint "$(LEFT)"
    ${DoUntil} ${Errors}
      ${If} $1 != "."
      ${AndIf} $1 != ".."
        DetailPrint "    $1"
      ${EndIf}
      FindNext $0 $1
    ${Loop}
    FindClose $0
  ${EndIf}
FunctionEnd

Section "Uninstall"
  Call un.Check_PROGRAM
  Call un.Check_ENGINE
  Call un.Clear
  Delete "$INSTDIR\uninstall.exe"
  RMDir "$INSTDIR" ; goes only if nothing else is in it
  Delete "$SMPROGRAMS\${TITLE}.lnk"
  DeleteRegKey HKCU "${LISTED}"
  DeleteRegKey HKCU "${ABOUT}"
  DeleteRegKey HKCU "${KINDS}\${KIND}"
  DeleteRegValue HKCU "${KINDS}\.ftw\OpenWithProgids" "${KIND}"
  DeleteRegKey /ifempty HKCU "${KINDS}\.ftw\OpenWithProgids"
  DeleteRegKey /ifempty HKCU "${KINDS}\.ftw"
  ${TELL}
  ${If} $IsUpdate = 0
    Delete "$DESKTOP\${TITLE}.lnk"
    RMDir /r "${DATA}\runtime" ; the page says so: it can be fetched again
  ${EndIf}
  ${If} $DropChats = 1
    Call un.ForgetChats
  ${EndIf}
  ${If} $DropModels = 1
    RMDir /r "${DATA}\models"
    RMDir /r "${DATA}\caches" ; gigabytes of downloads in flight
  ${EndIf}
  RMDir "${DATA}"
  Call un.ListLeft
SectionEnd
